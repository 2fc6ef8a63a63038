"""Run the tests, then each failed one again alone. One that passes there is FLAKY, and the run passes.

    python -m tests.again [arguments of pytest]

A test that fails again fails the run. Nothing is run again if the run was interrupted, found no tests, or could not
import one, nor if so much failed that chance is not the cause. FLAKY tests are printed at the end and kept in
`.pytest_cache/FLAKY`, which `.ci/run` prints last: mend them before anything else.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

#: Names the file that gets the failed tests, an id and a reason a line.
LIST = "PYTEST_FAILED_LIST"

FLAKY = Path(".pytest_cache/FLAKY")

#: More failures than these are no accident.
MOST = 20

#: No test is run again after this many seconds of it: CI has other things to do.
LONGEST_S = 900


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failed test, its set-up and its clean-up included."""
    if (path := os.environ.get(LIST)) and report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr)
        with Path(path).open("a") as out:
            out.write(f"{report.nodeid}\t{report.when}: {' '.join(reason.split())[:300]}\n")


def say(*lines: str) -> None:
    """Print lines below what pytest printed."""
    sys.stdout.write("\n" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def run(arguments: list[str], failed: Path) -> tuple[int, dict[str, str]]:
    """Run pytest; return its exit status and the reason of each failed test."""
    failed.write_text("")
    command = [sys.executable, "-m", "pytest", "-p", "tests.again", *arguments]
    status = subprocess.run(command, env={**os.environ, LIST: str(failed)}, check=False).returncode
    lines = [line.split("\t", 1) for line in failed.read_text().splitlines()]
    return status, dict(reversed(lines))


def passes_alone(name: str, options: list[str], failed: Path) -> bool:
    """Run one test in a process of its own, with nothing beside it."""
    say(f"again, alone: {name}")
    return run([*options, "-p", "no:xdist", name], failed)[0] == pytest.ExitCode.OK


def main(arguments: list[str]) -> int:
    """Run the tests and what failed of them again; return the exit status."""
    FLAKY.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        status, failed = run(arguments, Path(folder) / "failed")
        if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST:
            return status
        options = [each for each in arguments if each == "--families"]
        began, flaky = time.monotonic(), []
        for name, reason in failed.items():
            if time.monotonic() - began > LONGEST_S or not passes_alone(name, options, Path(folder) / "again"):
                say(f"FAILED twice, or not tried again: {name} ({reason})")
                return status
            flaky.append(f"FLAKY {name}: failed ({reason}), passed alone")
    FLAKY.parent.mkdir(exist_ok=True)
    FLAKY.write_text("".join(f"{line}\n" for line in flaky))
    say(*flaky)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
