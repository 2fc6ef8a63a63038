"""What the benchmarks share: options, services of two states in turn, their processes, callers, and tables.

``--before CHECKOUT`` names a folder with another state of the repository, as `git worktree add --detach FOLDER COMMIT`
makes it. Its own virtual environment is used if it has one, otherwise the one that runs the benchmark. ``--quick``
shows in seconds that a benchmark still runs; its figures mean nothing. Figures go to the standard output alone.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from corelane.artifacts.instructions import instruction_sets
from corelane.cli.redis_users import operator_url
from corelane.client import Client
from corelane.errors import CorelaneError, SetupError

ROOT = Path(__file__).parent.parent

#: The built-in model.
MODEL = "qa-minilm"

QUICK = "--quick"

BEFORE, AFTER = "before", "after"

#: A service is up within this; the first start on a folder compiles the model, in seconds.
READY_S = 600

#: A service has stopped within this, in seconds.
STOP_S = 90

#: The settings of a service's ports; each gets any free port.
PORTS = ("port", "redis_port", "flower_port")

#: A connection is reused only within this time, in seconds: servers close idle ones after some seconds.
IDLE_S = 2.0

#: Most results of a page.
PAGE = 500

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: Words in a command line that identify a role; the first match counts.
ROLES = (
    ("redis", ("redis-server", "valkey-server")),
    ("flower", ("flower",)),
    ("keeper", ("keeper@",)),
    ("worker", ("core.",)),
    ("api", (" api",)),
)

Figures = dict[str, float]


def is_quick() -> bool:
    """Return whether ``--quick`` was given."""
    return QUICK in sys.argv


def parser_of(description: str | None, rounds: int = 0, *, takes_questions: bool = False) -> argparse.ArgumentParser:
    """Return a parser with ``--quick``; if ``rounds`` is given, also with ``--rounds`` and ``--before``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(QUICK, action="store_true", help="a run of seconds whose figures mean nothing")
    if takes_questions:
        parser.add_argument("file", nargs="?", type=Path, help="questions in SQuAD's format")
    if rounds:
        parser.add_argument("--rounds", type=int, default=1 if is_quick() else rounds)
        parser.add_argument("--before", type=Path, help="a checkout of another state, measured in turn with this one")
    return parser


def checkouts(before: Path | None) -> dict[str, Path]:
    """Return the checkouts to measure, by name; raise SystemExit if ``before`` is no checkout."""
    if before is None:
        return {AFTER: ROOT}
    if not (before / "corelane").is_dir():
        raise SystemExit(f"{before} is no checkout of Corelane")
    return {BEFORE: before.resolve(), AFTER: ROOT}


def in_turn(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield each name once a round; every second round has the opposite order."""
    for number in range(rounds):
        yield from names if number % 2 == 0 else reversed(names)


def python_of(checkout: Path) -> str:
    """Return the interpreter of a checkout, or this one."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own if own.exists() else sys.executable)


def environment(**settings: object) -> dict[str, str]:
    """Return this process's environment with these settings of Corelane."""
    mine = dict(os.environ)  # noqa: TID251  # what a benchmark starts has what it has
    return mine | {f"CORELANE_{name.upper()}": str(value) for name, value in settings.items()}


@dataclass(frozen=True, slots=True)
class Serving:
    """A running service: its state's name, its URL, its `serve` process, its folder, its model and its Redis."""

    name: str
    url: str
    pid: int
    data: Path
    model: str
    redis_url: str

    def cpu_s(self) -> Figures:
        """Return the CPU seconds that the service's processes have used so far, by role."""
        return cpu_seconds(descendants(self.pid))

    def pids(self, role: str) -> list[int]:
        """Return the service's processes of a role."""
        return [pid for pid in descendants(self.pid) if role_of(pid) == role]


_LENT: ContextVar[Serving | None] = ContextVar("lent", default=None)


def lent() -> Serving | None:
    """Return the service that was lent, if one was."""
    return _LENT.get()


@contextmanager
def lend(running: Serving) -> Iterator[None]:
    """During the block, give this service to each benchmark of this checkout instead of starting one."""
    token = _LENT.set(running)
    try:
        yield
    finally:
        _LENT.reset(token)


@contextmanager
def serving(data: Path, name: str = AFTER, checkout: Path = ROOT, **settings: object) -> Iterator[Serving]:
    """Run `corelane serve` of a checkout for the length of a block; raise SetupError if it does not come up."""
    if name == AFTER and (running := lent()) is not None:
        yield running
        return
    data.mkdir(parents=True, exist_ok=True)
    argv = [python_of(checkout), "-m", "corelane", "serve", "--data", str(data)]
    env = environment(**{"auth": "off", "log_level": "warning", **dict.fromkeys(PORTS, 0)} | settings)
    log = data / "service.log"
    with log.open("wb") as out:
        service = subprocess.Popen(argv, cwd=checkout, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        noted = wait_until_up(service, data / "parts.json", log)
        model = str(settings.get("model", MODEL))
        yield Serving(name, str(noted["api"]), service.pid, data, model, str(operator_url(noted)))
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(STOP_S)


def wait_until_up(service: "subprocess.Popen[bytes]", parts: Path, log: Path) -> dict[str, Any]:
    """Return what a service notes about itself once all its cores serve."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and service.poll() is None:
        with suppress(FileNotFoundError, CorelaneError, KeyError):
            noted: dict[str, Any] = orjson.loads(parts.read_bytes())
            if noted["pid"] == service.pid and noted["is_ready"]:
                with Client(noted["api"], patience_s=0) as client:
                    states = [core["state"] for core in client.cores()]
                if states and all(state in ("idle", "busy") for state in states):
                    return noted
        time.sleep(0.1)
    raise SetupError(f"the service did not start; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}")


def compiled(folder: Path, checkout: Path = ROOT, source: str = MODEL, *options: str) -> tuple[Path, str]:
    """Return a folder of artifacts, and the model in it: those of the service that was lent, or a checkout's own."""
    if checkout == ROOT and source == MODEL and (running := lent()) is not None:
        return running.data / "artifacts", running.model
    argv = [python_of(checkout), "-m", "corelane", "compile", source, *options]
    subprocess.run(argv, cwd=checkout, env=environment(data_dir=folder), check=True, capture_output=True)
    return folder / "artifacts", Path(source).name


def children(pid: int) -> list[int]:
    """Return the processes that a process started, from any of its threads."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all processes below a process."""
    return [found for child in children(pid) for found in (child, *descendants(child))]


def role_of(pid: int) -> str:
    """Return the role of one process of a service; "other" if it is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return next((role for role, words in ROLES if any(word in command for word in words)), "other")


def cpu_seconds(pids: Sequence[int]) -> Figures:
    """Return user and system time so far, by role; without processes that are gone."""
    used: Figures = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        role = role_of(pid)
        used[role] = used.get(role, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return used


def cpu_us_since(before: Figures, running: Serving, items: int, prefix: str = "") -> Figures:
    """Return the CPU µs an item that a service took since a reading of its CPU seconds, by role."""
    now = running.cpu_s()
    return {f"{prefix}{role}_us": 1e6 * (spent - before.get(role, 0.0)) / max(1, items) for role, spent in now.items()}


class Connection:
    """A connection that stays open, and is opened again once the server closes it, or may have in a pause."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address, self._host = (parts.hostname or "", parts.port or 80), parts.netloc
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._used_at, self._is_over = time.monotonic(), False

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        """Return the answer's JSON; raise RuntimeError for a problem. Head and body go out in one piece."""
        if self._is_over or time.monotonic() - self._used_at > IDLE_S:
            self._socket.close()
            self._connect()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Host": self._host, "Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode() + body)
        with http.client.HTTPResponse(self._socket, method=method) as response:
            response.begin()
            content = response.read()
        self._used_at, self._is_over = time.monotonic(), response.will_close
        if response.status >= 400:
            raise RuntimeError(content.decode())
        return orjson.loads(content) if content else None

    def finish(self, job: str, **headers: str) -> dict[str, Any]:
        """Return a job once it is over."""
        while (found := self.call("GET", f"/v1/jobs/{job}?wait=30", b"", **headers))["finished_at"] is None:
            pass
        return dict(found)

    def results(self, job: str) -> Iterator[dict[str, Any]]:
        """Yield the results of a job that is over, in the order of its items."""
        after = "0"
        while after:
            page = self.call("GET", f"/v1/jobs/{job}/results?limit={PAGE}&after={after}")
            yield from page["data"]
            after = page["next"] if page["has_more"] else ""


def at_once(work: Callable[[], object], threads: int) -> None:
    """Do ``work`` in each of several threads; raise the first failure."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=run) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile; a single value is its own percentile."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the rounds that have it."""
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: statistics.median(each[name] for each in rounds if name in each) for name in names}


def table(columns: Mapping[str, Figures], title: str = "") -> str:
    """Return a Markdown table with a row for each figure and a column for each state."""
    rows = dict.fromkeys(name for figures in columns.values() for name in figures)
    lines = [f"| {title} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in rows:
        cells = [shown(figures.get(row)) for figures in columns.values()]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(value: float | None) -> str:
    """Return a figure with four significant digits; a large one without decimals."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def measure_in_turn(names: Sequence[str], rounds: int, measure: Callable[[str], Figures]) -> dict[str, Figures]:
    """Measure each state once a round, printing each round as it ends; print and return the medians."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for name in in_turn(names, rounds):
        found[name].append(measure(name))
        rounded = {key: float(f"{value:.5g}") for key, value in found[name][-1].items()}
        print(json.dumps({"state": name, "round": len(found[name])} | rounded), flush=True)
    middle = {name: medians(each) for name, each in found.items()}
    print(f"\n{about_machine()}\n\n{table(middle, f'medians of {rounds}')}", flush=True)
    return middle


def about_machine() -> str:
    """Name the CPU, the instructions that matter here, and how many CPUs this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")
    return f"{named} ({', '.join(instruction_sets())}), {len(os.sched_getaffinity(0))} CPUs"
