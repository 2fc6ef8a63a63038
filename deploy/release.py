"""Write what is published beside an image into a folder: ``make release``.

``sbom.cdx.json`` lists the packages of the image, ``image.json`` names the image itself by id and digests, with the
revision that it was built from, and ``openapi.json`` is the API. ``SHA256SUMS`` is over these and the Python client.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import sbom

ROOT = Path(__file__).parent.parent

#: What another command wrote, by the command.
WRITTEN = {"make docs": "docs/openapi.json", "make client": "dist/corelane_client-*"}


def run(*argv: str) -> str | None:
    """Return what a command printed; nothing if it failed, or if there is no such program."""
    if shutil.which(argv[0]) is None:
        return None
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


def describe(image: str) -> dict[str, Any] | None:
    """Return what identifies an image; nothing if there is none here. Refuse one of another revision than this tree."""
    told = run("docker", "image", "inspect", image)
    if told is None:
        return None
    [found] = json.loads(told)
    built = (found["Config"].get("Labels") or {}).get("org.opencontainers.image.revision", "unknown")
    here = run("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*") or "unknown"
    if built != here or "dirty" in here or here == "unknown":
        raise SystemExit(
            f"{image} was built from {built}, and this tree is {here}. Commit, and run `make image` again."
        )
    platform = f"{found['Os']}/{found['Architecture']}"
    return {"id": found["Id"], "digests": found["RepoDigests"], "revision": built, "platform": platform}


def write(folder: Path, image: str) -> list[str]:
    """Write it all; return the names of what could not be had, each with what to do."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    [extras] = re.findall(r"deploy/install\.sh \S+ (\S+)", (ROOT / "Dockerfile").read_text())
    (folder / "sbom.cdx.json").write_text(json.dumps(sbom.make(extras), indent=1) + "\n")
    names = {"sbom.cdx.json"}
    if described := describe(image):
        (folder / "image.json").write_text(json.dumps(described, indent=1) + "\n")
        names.add("image.json")
        if not described["digests"]:
            missing.append(f"the digest of {image}: push it first, then run this again")
    else:
        (folder / "image.json").unlink(missing_ok=True)
        missing.append(f"image.json: this machine has no image {image}, or no Docker; `make image` builds it")
    for command, pattern in WRITTEN.items():
        found = list(ROOT.glob(pattern))
        missing += [] if found else [f"{pattern}: `{command}` writes it"]
        for path in found:
            if path.parent != folder:
                shutil.copy(path, folder)
            names.add(path.name)
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return missing


def main() -> None:
    """Write the folder, and print what it holds and what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="corelane", help="the image's name in this machine's Docker")
    parser.add_argument("folder", type=Path, help="the folder to write")
    given = parser.parse_args()
    missing = write(given.folder.resolve(), given.image)
    sys.stdout.write((given.folder / "SHA256SUMS").read_text())
    sys.stderr.write("".join(f"left out: {line}\n" for line in missing))


if __name__ == "__main__":
    main()
