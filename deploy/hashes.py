"""Write the SHA-256 of every package of constraints/cpu.txt into constraints/cpu.hashes.txt: ``make hashes``.

pip reports the digests of the files that it would install for each platform below, and downloads only metadata. It is
asked only about new lines. PyTorch is left out: its CPU build is on an index of its own, which gives the digest itself.
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


def ask(lines: Sequence[str], python: str, machine: str) -> dict[str, tuple[str, str]]:
    """Return the URL and digest of each package's file that pip would install; a package without a file is left out."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBCS] + [f"manylinux2014_{machine}", f"linux_{machine}"]
    tags += [f"manylinux{name}_{machine}" for name in ("1", "2010")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        argv += ["--only-binary=:all:", "--target", f"{folder}/none", "--implementation", "cp"]
        argv += ["--python-version", python, *(part for tag in tags for part in ("--platform", tag))]
        asked = list(lines)
        while asked:
            done = subprocess.run([*argv, "--report", str(report), *asked], capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode == 0:
                break
            missing = re.search(r"No matching distribution found for (\S+)", done.stderr)
            if missing is None or missing[1] not in asked:
                raise SystemExit(done.stderr)
            sys.stderr.write(f"  no file of {missing[1]}\n")
            asked.remove(missing[1])
        installs = json.loads(report.read_text())["install"] if asked else []
    found = {}
    for each in installs:
        file = each["download_info"]
        found[normal(each["metadata"]["name"])] = (file["url"], file["archive_info"]["hashes"]["sha256"])
    return found


def read() -> dict[str, set[str]]:
    """Return the digests in the file as it stands, by line of the constraints."""
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
    new = [line for line in lines if line not in known]
    for python, machine in PLATFORMS:
        sys.stderr.write(f"{len(new)} packages, Python {python} on {machine}\n")
        files = ask(new, python, machine)
        for name, (_, digest) in files.items():
            found.setdefault(name, set()).add(digest)
        # One file for every platform is known now.
        new = [line for line in new if not files.get(normal(line), ("", ""))[0].endswith("-none-any.whl")]
    written = ["# The packages of cpu.txt with their digests, for pip's --require-hashes; `make hashes` writes it."]
    for line in lines:
        digests = sorted(known.get(line) or found[normal(line)])
        written.append(" \\\n".join([line, *(f"    --hash=sha256:{digest}" for digest in digests)]))
    WRITTEN.write_text("\n".join(written) + "\n")


if __name__ == "__main__":
    main()
