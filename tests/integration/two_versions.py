"""Processes of two versions of Corelane, side by side on one Redis and one data folder, as during a rolling upgrade.

A process is named by its version and its role: "old api", "new worker 0". Each is started by the command that an
operator would use.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from tests.chaos.processes import launch, parent_of
from tests.conftest import free_port
from tests.redis_for_tests import admin_url
from tests.waiting import eventually

#: The version that services upgrade from: they run its code, and have its data in Redis.
OLD_COMMIT = "20dac5ebfe322b5359789f6de68c1cde9c02bcc2"

NEW_ROOT = Path(__file__).resolve().parents[2]

#: What of a commit it takes to run it.
PACKAGES = ("corelane", "api", "workers", "compile")

#: Host part of the cores' names.
HOST = "upgrade"

#: A process stops, and everything else that a test waits for happens, well within this, in seconds.
STOP_S, WAIT_S = 60, 90


def unpack_old(folder: Path) -> Path:
    """Write the old version's code to a folder, from the history of this repository."""
    argv = ["git", "-C", str(NEW_ROOT), "archive", OLD_COMMIT, *PACKAGES]
    archive = subprocess.run(argv, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.fail(
            f"The upgrade test needs commit {OLD_COMMIT} in the history of {NEW_ROOT}. In a shallow clone, fetch it "
            f"with `git fetch --unshallow` or `git fetch origin {OLD_COMMIT}`. git says: {archive.stderr.decode()}",
            pytrace=False,
        )
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class TwoVersionFleet:
    """Start and stop processes of both versions. Call ``close`` at the end."""

    def __init__(self, folder: Path, redis_url: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        #: Its declared types mix bytes and text, so none is better.
        self.redis: Any = redis.Redis.from_url(admin_url(redis_url), decode_responses=True)
        self._roots = {"old": unpack_old(folder / "old"), "new": NEW_ROOT}
        self._urls = {version: f"http://127.0.0.1:{free_port()}" for version in self._roots}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CORELANE_")}
        places = {"REDIS_URL": redis_url, "DATA_DIR": str(folder / "data"), "CORE_HOST": HOST}
        given = {f"CORELANE_{name}": value for name, value in (places | dict(settings)).items()}
        self._envs = {version: clean | given | {"PYTHONPATH": str(root)} for version, root in self._roots.items()}
        for version, root in self._roots.items():
            self._check_code(version, root)

    def run(self, *names: str) -> None:
        """Stop every process that is not named and start those that are missing; return once that is done."""
        for name in [name for name, each in self._processes.items() if each.poll() is not None]:
            self.kill(name)
        surplus = self._processes.keys() - set(names)
        self._terminate(*surplus)
        for name in names:
            if name not in self._processes:
                self._processes[name] = self._launch(name)
        self._await_end(*surplus)
        self.wait_for("all of " + ", ".join(names) + " are up", lambda: all(map(self._is_up, names)))

    def stop(self, *names: str) -> None:
        """End processes as an operator does, with SIGTERM."""
        self._terminate(*names)
        self._await_end(*names)

    def kill(self, name: str) -> None:
        """End a process and its children with SIGKILL."""
        self._signal(name, signal.SIGKILL)
        self._processes.pop(name).wait(STOP_S)

    def freeze_at_work(self, name: str) -> bool:
        """Stop a worker with SIGSTOP; if it holds no claim at that moment, let it go on and return False."""
        self._signal(name, signal.SIGSTOP)
        if self.claims(name):
            return True
        self._signal(name, signal.SIGCONT)
        return False

    def thaw(self, name: str) -> None:
        """Let a frozen worker go on."""
        self._signal(name, signal.SIGCONT)

    def claims(self, name: str) -> list[str]:
        """Return the leases of a worker's core, in the form that the old version gives them."""
        leases = self.redis.zrange("cl:leases", 0, -1)
        return [lease for lease in leases if lease.startswith(f"{core_of(name)}#")]

    def http(self, version: str) -> httpx2.Client:
        """Return a client of the API of a version."""
        return httpx2.Client(base_url=self._urls[version], timeout=30, headers={"Authorization": "Bearer upgrade"})

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition is met; fail with ``what`` if it is not, or if a process ends meanwhile."""

        def is_met() -> bool:
            self.check_all_run()
            return condition()

        eventually(is_met, WAIT_S, lambda: f"{what}\n{self.last_words()}")

    def check_all_run(self) -> None:
        """Fail if a process ended that nobody ended."""
        ended = {name: each.poll() for name, each in self._processes.items() if each.poll() is not None}
        if ended:
            pytest.fail(f"Ended by themselves, with these statuses: {ended}\n{self.last_words()}", pytrace=False)

    def last_words(self, most: int = 1500) -> str:
        """Return the end of each running process's log."""
        logs = [self.folder / f"{name}.log" for name in self._processes]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-most:]}" for log in logs)

    def close(self) -> None:
        """End all processes at once."""
        for name in list(self._processes):
            self.kill(name)
        self.redis.close()

    def _check_code(self, version: str, root: Path) -> None:
        """Make sure that a version's processes import that version's code, and not the code installed here."""
        argv = [sys.executable, "-c", "import corelane; print(corelane.__file__)"]
        found = subprocess.run(argv, env=self._envs[version], cwd=self.folder, capture_output=True, check=True)
        assert Path(found.stdout.decode().strip()).is_relative_to(root)

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        version, _, role = name.partition(" ")
        more = {"api": ["--port", self._urls[version].rpartition(":")[2]], "worker": ["--core", role[-1]]}
        command = role.partition(" ")[0]
        argv = [sys.executable, "-m", "corelane", command, *more.get(command, [])]
        return launch(argv, self._envs[version], self.folder / f"{name}.log")

    def _is_up(self, name: str) -> bool:
        """Return whether an API answers, a worker's core reports itself; other roles just have to run."""
        version, _, role = name.partition(" ")
        if role == "api":
            with suppress(httpx2.TransportError), self.http(version) as api:
                return api.get("/livez").is_success
            return False
        if role.startswith("worker"):
            state, pid = self.redis.hmget(f"cl:core:{core_of(name)}", "state", "pid")
            return state in ("idle", "busy") and parent_of(int(pid)) == self._processes[name].pid
        return True

    def _terminate(self, *names: str) -> None:
        for name in names:
            self._processes[name].terminate()
            self.thaw(name)

    def _await_end(self, *names: str) -> None:
        for name in names:
            try:
                self._processes[name].wait(STOP_S)
            except subprocess.TimeoutExpired:
                pytest.fail(f"{name} did not stop within {STOP_S} s of SIGTERM\n{self.last_words()}", pytrace=False)
            self.kill(name)

    def _signal(self, name: str, sign: signal.Signals) -> None:
        """Send a signal to a process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, sign)


def core_of(name: str) -> str:
    """Return the core that a worker serves."""
    return f"{HOST}/{name.rpartition(' ')[2]}"
