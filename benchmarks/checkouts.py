"""Two states of Corelane measured in turn in one run: each serves from a checkout of its own.

``--before CHECKOUT`` names a folder with another state of the repository, as `git worktree add --detach FOLDER COMMIT`
makes it. Its own virtual environment is used if it has one, otherwise the one that runs the benchmark.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.processes import cpu_seconds, descendants
from benchmarks.runs import lent
from corelane.cli.folders import PARTS_FILE
from corelane.client import Client
from corelane.errors import CorelaneError, SetupError
from corelane.settings import read_settings

ROOT = Path(__file__).parent.parent

#: A service is up within this; the first start on a folder compiles the model, in seconds.
READY_S = 600

#: A service has stopped within this, in seconds.
STOP_S = 90

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class Serving:
    """A service that runs from a checkout."""

    name: str
    url: str
    pid: int
    data: Path

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds of its processes so far, by role."""
        return cpu_seconds(descendants(self.pid))


def add_before(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the other checkout."""
    parser.add_argument("--before", type=Path, help="a checkout of another state, measured in turn with this one")


def checkouts(before: Path | None) -> dict[str, Path]:
    """Return the checkouts to measure, by name; raise SystemExit if the other one is none."""
    if before is None:
        return {AFTER: ROOT}
    if not (before / "corelane").is_dir():
        raise SystemExit(f"{before} is no checkout of Corelane")
    return {BEFORE: before.resolve(), AFTER: ROOT}


def in_turn(names: list[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield round and name; every second round has the opposite order."""
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


@contextmanager
def serving(name: str, checkout: Path, data: Path, **settings: object) -> Iterator[Serving]:
    """Run `corelane serve` of a checkout for the length of a block; raise SetupError if it does not come up.

    A service that was lent stands for this checkout's.
    """
    if name == AFTER and (running := lent()) is not None:
        yield Serving(name, running.url, running.pid, running.data)
        return
    data.mkdir(parents=True, exist_ok=True)
    own = checkout / ".venv" / "bin" / "python"
    argv = [str(own if own.exists() else sys.executable), "-m", "corelane", "serve", "--data", str(data)]
    given = read_settings()
    changes = {"auth": "off"} | settings
    # What the environment says, and the changes; each checkout has its own defaults for all others.
    unset = dict.fromkeys(set(type(given).model_fields) - given.model_fields_set)
    env = given.environment(**(unset | changes))
    log = data / "service.log"
    with log.open("wb") as out:
        service = subprocess.Popen(argv, cwd=checkout, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield Serving(name, wait_until_up(service, data, log), service.pid, data)
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(STOP_S)


def wait_until_up(service: "subprocess.Popen[bytes]", data: Path, log: Path) -> str:
    """Return the service's URL once all its cores serve."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and service.poll() is None:
        with suppress(FileNotFoundError, CorelaneError, KeyError):
            noted = orjson.loads((data / PARTS_FILE).read_bytes())
            if noted["pid"] == service.pid and noted["is_ready"]:
                with Client(noted["api"], patience_s=0) as client:
                    states = [core["state"] for core in client.cores()]
                if states and all(state in ("idle", "busy") for state in states):
                    return str(noted["api"])
        time.sleep(0.1)
    raise SetupError(f"the service did not start; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}")
