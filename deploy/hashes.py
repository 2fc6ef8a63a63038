"""Write the SHA-256 of every package of constraints/cpu.txt into constraints/cpu.hashes.txt: ``make hashes``.

pip says them, of the files that it would install for each platform below, and downloads descriptions only. It is asked
about lines that are new. PyTorch is left out: its CPU build is on an index of its own, which gives the digest itself.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent / "constraints"
WRITTEN = CONSTRAINTS / "cpu.hashes.txt"

#: Installed from elsewhere; see install.sh.
LEFT_OUT = ("torch",)

#: Builds the package itself; the environment of its build takes no constraint.
BUILD = ("setuptools==80.9.0",)

#: Interpreter and machine of each platform; the last glibc first, as a wheel may need any up to it.
PLATFORMS = [(python, machine) for machine in ("x86_64", "aarch64") for python in ("3.11", "3.12", "3.13")]
GLIBCS = (39, 38, 37, 36, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)


def pinned() -> list[str]:
    """Return the lines of constraints/cpu.txt that pin what is hashed."""
    lines = (CONSTRAINTS / "cpu.txt").read_text().splitlines()
    names = [line.split("#")[0].strip() for line in lines]
    return [line for line in names if "==" in line and line.partition("==")[0] not in LEFT_OUT]


def ask(lines: Sequence[str], python: str, machine: str) -> dict[str, set[str]]:
    """Return the digests of the files that pip would install there, by requirement."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBCS] + [f"manylinux2014_{machine}", f"linux_{machine}"]
    tags += [f"manylinux{name}_{machine}" for name in ("1", "2010")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        argv += ["--only-binary=:all:", "--target", f"{folder}/none", "--implementation", "cp"]
        argv += ["--python-version", python, *(part for tag in tags for part in ("--platform", tag))]
        subprocess.run([*argv, "--report", str(report), *lines], check=True)  # noqa: S603  # pip
        found: dict[str, set[str]] = {}
        for each in json.loads(report.read_text())["install"]:
            found.setdefault(normal(each["metadata"]["name"]), set()).add(
                each["download_info"]["archive_info"]["hashes"]["sha256"]
            )
    return found


def read() -> dict[str, set[str]]:
    """Return the digests that were written, by line of the constraints."""
    text = WRITTEN.read_text().replace("\\\n", " ") if WRITTEN.exists() else ""
    return {
        line.split()[0]: set(re.findall("sha256:([0-9a-f]{64})", line)) for line in text.splitlines() if "==" in line
    }


def normal(line: str) -> str:
    """Return the name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()


def main() -> None:
    """Ask for what is new, for every platform, and write the file."""
    lines, known, found = [*pinned(), *BUILD], read(), dict[str, set[str]]()
    if new := [line for line in lines if line not in known]:
        for python, machine in PLATFORMS:
            sys.stderr.write(f"{len(new)} packages, Python {python} on {machine}\n")
            for name, digests in ask(new, python, machine).items():
                found.setdefault(name, set()).update(digests)
    written = ["# The packages of cpu.txt with their digests, for pip's --require-hashes; `make hashes` writes it."]
    for line in lines:
        digests = sorted(known.get(line) or found[normal(line)])
        written.append(" \\\n".join([line, *(f"    --hash=sha256:{digest}" for digest in digests)]))
    WRITTEN.write_text("\n".join(written) + "\n")


if __name__ == "__main__":
    main()
