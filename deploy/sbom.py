"""Write a software bill of materials (CycloneDX 1.6, JSON): ``make sbom``.

It lists what extras of Corelane bring in, as it is installed in the environment that runs this: version, licence,
digests of ``constraints/cpu.hashes.txt``, and which package needs which. Files of others that stand in the repository
(scripts of pages, the built-in model) are listed by their digests.
"""

import argparse
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent

#: Files of other people that stand in the repository.
SHIPPED = ("api/docs/static/*", "corelane/plugins/console/pages/static/vendor/*", "models/*/*")

Place = tuple[str, tuple[str, ...]]


def normal(name: str) -> str:
    """Return the name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(place: Place, project: dict[str, Any]) -> Iterator[Place]:
    """Yield what a package with these extras asks for on this machine."""
    name, extras = place
    if name == "corelane":
        texts = project["dependencies"] + [each for extra in extras for each in project["optional-dependencies"][extra]]
    else:
        texts = distribution(name).requires or []
    for needed in map(Requirement, texts):
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield normal(needed.name), tuple(sorted(needed.extras))


def walk(extras: str, project: dict[str, Any]) -> dict[str, set[str]]:
    """Return every package that extras bring in, each with those it needs; without what is not installed here."""
    needs: dict[str, set[str]] = {}
    seen: set[Place] = set()
    waiting: list[Place] = [("corelane", tuple(extras.split(",")))]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        try:
            found = list(wanted(place, project))
        except PackageNotFoundError:
            sys.stderr.write(f"{place[0]} is not installed here, and is left out\n")
            continue
        needs.setdefault(place[0], set()).update(name for name, _ in found if name != place[0])
        waiting += found
    return {name: {other for other in others if other in needs} for name, others in needs.items()}


def digests() -> dict[str, list[str]]:
    """Return the digests of each package's files."""
    text = (ROOT / "constraints" / "cpu.hashes.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if "==" in line]
    return {normal(line.partition("==")[0]): re.findall("sha256:([0-9a-f]{64})", line) for line in lines}


def licences(found: Distribution) -> list[dict[str, Any]]:
    """Return the licence that a package's metadata name."""
    expression, text = found.metadata.get("License-Expression"), found.metadata.get("License") or ""
    if expression:
        return [{"expression": expression}]
    named = [each.rpartition(" :: ")[2] for each in found.metadata.get_all("Classifier") or [] if "License ::" in each]
    short = text.strip().partition("\n")[0][:100]
    return [{"license": {"name": name}} for name in (named or ([short] if short else []))]


def describe(name: str, hashed: dict[str, list[str]]) -> dict[str, Any]:
    """Return a package as a component."""
    found = distribution(name)
    purl = f"pkg:pypi/{name}@{found.version.replace('+', '%2B')}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl}
    # A component has one digest of a kind, and a package a file for each platform: they stand beside it.
    files = [
        {"type": "distribution", "url": purl, "hashes": [{"alg": "SHA-256", "content": each}]}
        for each in hashed.get(name, [])
    ]
    return component | {"licenses": licences(found), "externalReferences": files}


def shipped() -> Iterator[dict[str, Any]]:
    """Yield the files of others as components."""
    for path in sorted(path for pattern in SHIPPED for path in ROOT.glob(pattern) if path.is_file()):
        name, content = str(path.relative_to(ROOT)), hashlib.sha256(path.read_bytes()).hexdigest()
        yield {"type": "file", "bom-ref": name, "name": name, "hashes": [{"alg": "SHA-256", "content": content}]}


def make(extras: str) -> dict[str, Any]:
    """Return the bill of extras, with commas between them; the same for the same environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.findall(r'__version__ = "([^"]+)"', (ROOT / "corelane" / "__init__.py").read_text())[0]
    needs, hashed = walk(extras, project), digests()
    own = {"type": "application", "bom-ref": f"corelane@{version}", "name": "corelane", "version": version}
    described = {name: describe(name, hashed) for name in sorted(set(needs) - {"corelane"})}
    refs = {name: component["bom-ref"] for name, component in described.items()} | {"corelane": own["bom-ref"]}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"licenses": [{"expression": project["license"]}]}},
        "components": [*described.values(), *shipped()],
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[other] for other in needs[name])} for name in sorted(needs)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return bill | {"serialNumber": f"urn:uuid:{serial}"}


def main() -> None:
    """Write the bill of extras."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", default="all", help="extras of pyproject.toml, with commas between them")
    parser.add_argument("file", type=Path, help="the file to write")
    given = parser.parse_args()
    bill = make(given.extra)
    given.file.write_text(json.dumps(bill, indent=1) + "\n")
    sys.stdout.write(f"{given.file}: {len(bill['components'])} components\n")


if __name__ == "__main__":
    main()
