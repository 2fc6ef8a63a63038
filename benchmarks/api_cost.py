"""What a request costs the API process: CPU µs of a `/livez`, of a lone job, and of an application that does nothing.

    python benchmarks/api_cost.py [--before CHECKOUT] [--rounds 20] [--requests 200] [--profile] [--quick]

A service with the null engine and one core, called over one connection that is kept. The lone job is a
`POST /v1/jobs` with `Prefer: wait`. The application that does nothing runs under Hypercorn: what is left of a request
without it is the application's. With a checkout of another state (with its `.venv`), both are measured in turn, round
by round, so that a busy moment hits both. CPU time is the process' own, of all its threads, so that neighbours on the
machine count little. `--profile` runs a second API process under cProfile and says where its CPU time goes: by package,
and the costliest functions.
"""

import argparse
import contextlib
import io
import json
import os
import pstats
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CHECKOUT = HERE.parent

#: A role of this file beside the measurement: `ROLE TARGET FD`, run by a checkout's own interpreter in its folder.
BARE, PROFILED = "--bare", "--profiled"

#: A checkout's own packages come first where one of its processes runs this file.
sys.path.insert(0, str(Path.cwd() if BARE in sys.argv or PROFILED in sys.argv else CHECKOUT))

QUICK = "--quick"

#: Requests before those that a profile shows.
WARM_UP = 50

ITEM = json.dumps({"question": "What is the number?", "context": "The number is 7. " * 8}).encode()

#: The application that does nothing answers with as many bytes as `/livez`.
ANSWER = b'{"status":"ok","cores":null,"details":null}'

#: Packages of a profile that are named; the rest is the interpreter's own.
PACKAGES = (
    *("hypercorn", "h11", "starlette", "fastapi", "pydantic", "pydantic_core", "api"),
    *("corelane", "redis", "structlog", "asyncio", "contextlib", "uvloop", "orjson", "anyio"),
)

MOST_FUNCTIONS = 40


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "User-Agent: api-cost", "Accept: */*", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


LIVEZ = request("GET", "/livez")
LONE = request("POST", "/v1/jobs", ITEM, "Prefer: wait=30")


class Caller:
    """A connection that is kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def call(self, sent: bytes) -> bytes:
        """Return the answer's body; raise RuntimeError for a refusal."""
        self._socket.sendall(sent)
        status = self._answers.readline()
        length, is_chunked = 0, False
        while line := self._answers.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
            is_chunked = is_chunked or line == b"transfer-encoding: chunked"
        body = self._read_chunks() if is_chunked else self._answers.read(length)
        if b" 200 " not in status and b" 201 " not in status:
            raise RuntimeError(f"{status.decode()}{body.decode()}")
        return body

    def _read_chunks(self) -> bytes:
        body = b""
        while size := int(self._answers.readline(), 16):
            body += self._answers.read(size)
            self._answers.readline()
        self._answers.readline()
        return body


def cpu_us(pid: int) -> float:
    """CPU time of a process so far, of all its threads, in microseconds."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1000


class Subject:
    """One thing to measure: a process, and what it is asked."""

    def __init__(self, address: tuple[str, int], pid: int, sent: bytes) -> None:
        self._address, self._pid, self._sent = address, pid, sent
        self.taken: list[float] = []

    def run(self, requests: int) -> None:
        """Ask over one connection, and note the CPU µs of one request."""
        caller, used = Caller(self._address), cpu_us(self._pid)
        for _ in range(requests):
            caller.call(self._sent)
        self.taken.append((cpu_us(self._pid) - used) / requests)


def environment(**changes: object) -> dict[str, str]:
    """Return this process's environment without Corelane's settings, with these changes."""
    own = ("CORELANE_", "_CORELANE_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(own)}  # noqa: TID251
    return mine | {f"CORELANE_{name.upper()}": str(value) for name, value in changes.items()}


SETTINGS = {"target": "null", "auth": "off", "cores": 1, "api_processes": 1, "log_format": "json", "port": 0}


def python(checkout: Path) -> str:
    """Return the interpreter of a checkout."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of a URL."""
    host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def listening(checkout: Path, role: str, name: str, env: dict[str, str]) -> Iterator[tuple[tuple[str, int], int]]:
    """Run this file in a role on a socket of its own, in a checkout; yield the address and the process id."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        address = listener.getsockname()
        argv = [python(checkout), __file__, role, name, str(listener.fileno())]
        process = subprocess.Popen(argv, cwd=checkout, env=env, pass_fds=(listener.fileno(),))
    try:
        yield address, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


async def nothing(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Read the request and answer it."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def run_bare(_: str, fd: int) -> None:
    """Serve the application that does nothing until interrupted."""
    import asyncio

    import hypercorn.asyncio
    import uvloop
    from hypercorn.config import Config

    async def run() -> None:
        asked, config = asyncio.Event(), Config()
        config.bind, config.keep_alive_max_requests = [f"fd://{fd}"], 2**31
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, asked.set)
        await hypercorn.asyncio.serve(nothing, config, shutdown_trigger=asked.wait, mode="asgi")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def run_profiled(target: str, fd: int) -> None:
    """Be an API process under cProfile until interrupted; write what it found to a file."""
    import cProfile

    from corelane.cli.roles import run_api
    from corelane.settings import Settings

    profile = cProfile.Profile(time.process_time)
    # The first requests load what later ones use: the profile begins after them.
    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    run_api(Settings(), fd)
    profile.disable()
    profile.dump_stats(target)


def package_of(file: str) -> str:
    """Return the package of a profile's function, by its file."""
    for name in PACKAGES:
        if f"/{name}/" in file:
            return name
    return "(built in)" if file == "~" else "(others)"


def describe(path: Path, requests: int) -> str:
    """Return a profile as text: µs a request by package, and the functions that take most themselves."""
    out = io.StringIO()
    stats = pstats.Stats(str(path), stream=out)
    by_package: dict[str, float] = {}
    timings: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own_s, _, _) in timings.items():
        by_package[package_of(file)] = by_package.get(package_of(file), 0.0) + own_s
    lines = [f"| {name} | {1e6 * own_s / requests:.0f} |" for name, own_s in sorted(by_package.items(), key=by_own)]
    stats.strip_dirs().sort_stats("tottime").print_stats(MOST_FUNCTIONS)
    return "\n".join(["| package | µs a request, under the profiler |", "|---|---|", *lines, "", out.getvalue()])


def by_own(entry: tuple[str, float]) -> float:
    """Sort the largest first."""
    return -entry[1]


def profile(checkout: Path, folder: Path, redis_url: str, sent: bytes, requests: int) -> str:
    """Return the profile of a second API process of a service under one kind of request."""
    folder.mkdir()
    target = folder / "profile"
    env = environment(**SETTINGS, redis_url=redis_url, data_dir=folder)
    with listening(checkout, PROFILED, str(target), env) as (address, pid):
        caller = Caller(address)
        for number in range(WARM_UP + requests):
            if number == WARM_UP:
                os.kill(pid, signal.SIGUSR1)
            caller.call(sent)
    return describe(target, requests)


def subjects_of(about: dict[str, Any], checkout: Path, stack: contextlib.ExitStack) -> dict[str, Subject]:
    """Return what is measured of a checkout: its running service, and the application that does nothing."""
    address, pid = address_of(about["api"]), about["parts"]["api"]["pid"]
    subjects = {"GET /livez": Subject(address, pid, LIVEZ), "lone job": Subject(address, pid, LONE)}
    bare, bare_pid = stack.enter_context(listening(checkout, BARE, "", environment()))
    return subjects | {"nothing, GET": Subject(bare, bare_pid, LIVEZ), "nothing, POST": Subject(bare, bare_pid, LONE)}


def main() -> None:
    """Measure, and print a table."""
    if BARE in sys.argv or PROFILED in sys.argv:
        role, name, fd = sys.argv[1:]
        (run_bare if role == BARE else run_profiled)(name, int(fd))
        return
    from benchmarks.checkouts import add_before, checkouts, in_turn, serving
    from benchmarks.runs import is_quick, keep
    from corelane.cli.redis_users import operator_url

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_before(parser)
    parser.add_argument("--rounds", type=int, default=1 if is_quick() else 20)
    parser.add_argument("--requests", type=int, default=5 if is_quick() else 200, help="requests of each kind a round")
    parser.add_argument("--profile", action="store_true", help="say where the API's CPU time goes, too")
    parser.add_argument(QUICK, action="store_true", help="few requests, no figures kept")
    arguments = parser.parse_args()
    states = checkouts(arguments.before)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        found, abouts = dict[str, dict[str, Subject]](), dict[str, dict[str, Any]]()
        for state, checkout in states.items():
            running = stack.enter_context(serving(state, checkout, Path(folder) / state, **SETTINGS))
            abouts[state] = json.loads((running.data / "parts.json").read_bytes())
            found[state] = subjects_of(abouts[state], checkout, stack)
            for subject in found[state].values():
                subject.run(arguments.requests)  # the first requests load what later ones use
                subject.taken.clear()
        for _, state in in_turn(list(found), arguments.rounds):
            for subject in found[state].values():
                subject.run(arguments.requests)
        figures = {
            state: {name: round(statistics.median(subject.taken), 1) for name, subject in subjects.items()}
            for state, subjects in found.items()
        }
        print(f"| CPU µs a request | {' | '.join(figures)} |\n|---|{'---|' * len(figures)}")
        for name in next(iter(figures.values())):
            print(f"| {name} | {' | '.join(f'{of[name]:.0f}' for of in figures.values())} |")
        if arguments.profile:
            for state, checkout in states.items():
                for name, sent in (("GET /livez", LIVEZ), ("lone job", LONE)):
                    own, redis_url = Path(folder) / f"{state}-{len(name)}", str(operator_url(abouts[state]))
                    print(f"\n{state}, {name}:\n")
                    print(profile(checkout, own, redis_url, sent, arguments.rounds * arguments.requests))
    keep("api_cost", figures)


if __name__ == "__main__":
    main()
