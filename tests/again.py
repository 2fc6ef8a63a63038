"""Run each failed test again, alone, at the end of a run: `make test` loads this with ``-p tests.again``.

A test that passes alone is listed as FLAKY, counts as passed and does not fail the run. One that fails again does.
Nothing runs again if a file could not be collected, if a test did not run, or if more than ``MOST`` failed. Nor does a
test if the error came as the last test of its file was torn down: it may be about all tests before, which no test shows
alone. ``TESTS_AGAIN_REPORT`` names a file that gets a line for each test that ran again.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

#: More failures than this are a fault, not chance.
MOST = 20
#: Time for all tests that run again, in seconds. One alone may take minutes, if it compiles a model.
LONGEST_S = 600
#: What is shown of the output of a test that failed again.
SHOWN_LINES = 80

OF_ITS_FILE = ("failed", "as its file was torn down")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    try:
        return (yield)
    except BaseException:
        if nextitem is None or nextitem.path != item.path:
            item.user_properties.append(OF_ITS_FILE)
        raise


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Again())


class Again:
    """How many tests ran, and what came of the failed ones alone."""

    def __init__(self) -> None:
        self._collected = 0
        self._ran: set[str] = set()
        self._told: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._collected = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Run failed tests again; xdist has ended its workers by now."""
        terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        reports = [*terminal.stats.get("failed", ()), *terminal.stats.get("error", ())]
        first: dict[str, pytest.TestReport] = {}
        for report in reports:
            first.setdefault(report.nodeid, report)
        whole = len(self._ran) == self._collected and all(isinstance(report, pytest.TestReport) for report in reports)
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not whole or not 0 < len(first) <= MOST:
            return
        deadline, lines = time.monotonic() + LONGEST_S, []
        terminal.write_line("")
        for test, report in first.items():
            terminal.write_line(f"again, alone: {test}")
            if any(OF_ITS_FILE in map(tuple, each.user_properties) for each in reports if each.nodeid == test):
                outcome, output = "not tried, as it may be about all tests of the file", ""
            else:
                outcome, output = run_alone(test, session.config, deadline)
            if outcome == "passed":
                forgive(terminal.stats, report)
                # What failed again is shown by pytest already.
                output = "\n".join(
                    [f"--- {test}, beside others", report.longreprtext, *map("\n".join, report.sections)]
                )
            lines.append(f"{'FLAKY' if outcome == 'passed' else 'FAILED'} {test}: {said(report)}; alone: {outcome}")
            self._told.append(output)
        self._told += lines
        if all(line.startswith("FLAKY") for line in lines):
            session.exitstatus = pytest.ExitCode.OK
        if name := os.environ.get("TESTS_AGAIN_REPORT"):
            with Path(name).open("a") as file:
                file.writelines(f"{line}\n" for line in lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._told:
            terminalreporter.section("failed tests, each again alone")
            terminalreporter.write("".join(f"{text}\n" for text in self._told if text))


def run_alone(test: str, config: pytest.Config, deadline: float) -> tuple[str, str]:
    """Run a test in a process of its own, with this run's options. Return "passed" or another outcome, and the output
    of one that did not pass. End all that it started.
    """
    given = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    options = [option for option in given if option not in config.args]
    argv = [sys.executable, "-m", "pytest", *options, "-n", "0", "-p", "no:tests.again", "--junit-xml=", test]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            argv, cwd=config.rootpath, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return "no time was left", ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        shown = "\n".join([f"--- {test}, alone", *output.read().splitlines()[-SHOWN_LINES:]])
    return ("passed", "") if status == 0 else (f"failed with status {status}", shown)


def said(report: pytest.TestReport) -> str:
    """Return the first line of what a test failed with."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return next(iter(text.strip().splitlines()), "no message")[:300]


def forgive(stats: dict[str, list[Any]], report: pytest.TestReport) -> None:
    """Count a failed test as passed, and as flaky."""
    for kind in ("failed", "error", "passed"):
        stats[kind] = [each for each in stats.get(kind, ()) if each.nodeid != report.nodeid]
    for kind in ("passed", "flaky"):
        stats.setdefault(kind, []).append(report)
