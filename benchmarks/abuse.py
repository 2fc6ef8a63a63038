"""Callers who leave, hold back or flood connections: what that costs the API, and whether it is at rest soon after.

    python benchmarks/abuse.py [--quick] [--url http://127.0.0.1:8000] [--nginx] [--only pipelined,resets]

Against a running service of this machine, or one of its own with the null engine. Each kind of abuse has its own
number of connections and ends after a fixed time at the latest. Meanwhile /livez is asked twenty times a second. After
it, the API process must come to rest within twenty seconds: no more file descriptors than before, no half-closed
connections, an idle CPU. Printed for each: p50 and p99 of /livez, CPU time, seconds until rest, memory, descriptors.
With ``--nginx`` callers meet nginx, configured as docs/23-security.md says; the figures are the API's all the same.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.exceptions
import httpx2

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.abuse_bodies import BODY_KINDS
from benchmarks.nginx import nginx_before
from benchmarks.processes import children, cpu_seconds
from benchmarks.runs import is_quick, keep, service

HERE = Path(__file__).parent

#: What is promised: p99 of /livez meanwhile, and the time to rest: Hypercorn may hold closed connections for 15 s.
LIVEZ_P99_MS, REST_S = 200.0, 20.0

#: /livez is asked this often, in seconds.
PROBE_S = 0.05

#: Connections to the service of the process that asks.
PROBES = 1

#: The service is left alone for this long, and in a quick run, in seconds.
ALONE_S, QUICK_ALONE_S = 5.0, 0.5

#: A kind of abuse ends after this at the latest, and this many connections are at it at a time.
MOST_S, AT_A_TIME = 30.0, 50

#: At rest: descriptors over those before, and CPU seconds a second over what it used before.
REST_FDS, REST_CPU = 2, 0.15

#: After an abuse that never rests, the next begins anyway, in seconds.
GIVE_UP_S = 75.0

CLOSE_WAIT = "08"

QUESTION = b'{"question": "What is the number?", "context": "The number is 7."}'

#: A connection is held for this, in seconds.
HELD_S = 10.0

#: Requests sent ahead in one connection, and streams opened and reset in one.
AHEAD, RESETS = 900, 400


class Processes:
    """The processes that answer on a port, as /proc shows them: those that hold its sockets for them do not count."""

    def __init__(self, port: int) -> None:
        self._port = f":{port:04X}"
        sockets = {f"socket:[{row[9]}]" for row in self._sockets() if row[3] == "0A"}
        holders = {pid for pid in self._pids() if sockets & self._links(pid)}
        self.pids = [pid for pid in holders if not holders.intersection(children(pid))]

    def fds(self) -> int:
        """How many file descriptors are open."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids)

    def half_closed(self) -> int:
        """Count connections whose caller has left and that are still held."""
        return sum(row[3] == CLOSE_WAIT for row in self._sockets())

    def resident_mb(self) -> float:
        """Memory held."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)

    def cpu_s(self) -> float:
        """CPU time used so far."""
        return sum(cpu_seconds(self.pids).values())

    def _sockets(self) -> list[list[str]]:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [row for row in rows if row[1].endswith(self._port)]

    @staticmethod
    def _pids() -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]

    @staticmethod
    def _links(pid: int) -> set[str]:
        found = set()
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()))
        return found


class Target:
    """A service, how to reach it, and a job of its that stays open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url, self.host, self.port = url, parts.hostname or "127.0.0.1", parts.port or 80
        self.job = ""

    def request(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
        """Return a request's bytes."""
        size = len(body) if length is None else length
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {size}\r\n\r\n".encode() + body

    @asynccontextmanager
    async def wire(self, *, reset: bool = False) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection; close or reset it at the end, whatever is unread."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            if reset:
                writer.transport.abort()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def pipelined(target: Target, number: int) -> None:
    """Send many requests ahead in a connection and close it at once; every other one asks questions."""
    one = target.request("POST", "/v1/answers", QUESTION) if number % 2 else target.request("GET", "/v1/jobs")
    async with target.wire() as (_, writer):
        writer.write(one * AHEAD)
        with suppress(OSError):
            await asyncio.wait_for(writer.drain(), 1)


async def resets(target: Target, number: int) -> None:
    """Open streams of HTTP/2 and reset each at once."""
    wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    wire.initiate_connection()
    path, method = ("/v1/answers", "POST") if number % 2 else ("/v1/jobs", "GET")
    head = [(":method", method), (":scheme", "http"), (":authority", target.host), (":path", path)]
    async with target.wire() as (reader, writer):
        with suppress(OSError, h2.exceptions.ProtocolError):
            for opened in range(RESETS):
                stream = wire.get_next_available_stream_id()
                if method == "POST":
                    wire.send_headers(stream, [*head, ("content-type", "application/json")])
                    wire.send_data(stream, QUESTION, end_stream=True)
                else:
                    wire.send_headers(stream, head, end_stream=True)
                wire.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
                if opened % 20 == 0:
                    writer.write(wire.data_to_send())
                    await writer.drain()
            writer.write(wire.data_to_send())
            await asyncio.wait_for(reader.read(1 << 20), 1)


async def unread(target: Target, number: int) -> None:
    """Ask for a page and leave without reading it."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", "/openapi.json"))
        await asyncio.sleep(0.01)


async def not_reading(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for large pages one after the other, never read, and leave after a while."""
    async with target.wire() as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # what a stalled reader does
        writer.write(target.request("GET", "/openapi.json") * 50)
        await asyncio.sleep(3)


async def halves(target: Target, number: int) -> None:
    """Send half a head or half a body, wait a little, and leave."""
    whole = target.request("POST", "/v1/answers", QUESTION, 2 * len(QUESTION))
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(whole if number % 3 else whole[:40])
        await asyncio.sleep(0.5)


async def questions(target: Target, number: int) -> None:
    """Ask a question and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("POST", "/v1/answers", QUESTION))
        await writer.drain()


async def polls(target: Target, number: int) -> None:
    """Wait for a job that goes on, and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", f"/v1/jobs/{target.job}?wait=60"))
        await asyncio.sleep(0.2)


async def streams(target: Target, number: int) -> None:
    """Follow a job that goes on, and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", f"/v1/jobs/{target.job}/events"))
        await asyncio.sleep(0.2)


async def nothing(target: Target, number: int) -> None:  # noqa: ARG001
    """Leave the service alone: what /livez takes by itself on this machine."""
    await asyncio.sleep(QUICK_ALONE_S if is_quick() else ALONE_S)


async def cookies(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for a page with a long cookie of what a reader of cookies would unquote."""
    async with target.wire() as (reader, writer):
        cookie = b'Cookie: a="' + b"\\a" * 20_000 + b'"\r\nContent-Length'
        writer.write(target.request("GET", "/console/sign-in").replace(b"Content-Length", cookie))
        await reader.read(1000)


async def idle(target: Target, number: int) -> None:
    """Hold a connection on which nothing comes, or the head of a request that does not end."""
    async with target.wire() as (_, writer):
        writer.write(b"" if number % 2 else b"GET /livez HTTP/1.1\r\nA: ")
        await asyncio.sleep(HELD_S)


async def chunks(target: Target, number: int) -> None:
    """Send a body in chunks of one byte, or one chunk whose extension does not end."""
    head = target.request("POST", "/v1/jobs").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    part = b"1\r\nx\r\n" * 10_000 if number % 2 else b"a" * 60_000
    async with target.wire() as (_, writer):
        writer.write(head if number % 2 else head + b"1;")
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(HELD_S):
                while True:
                    writer.write(part)
                    await writer.drain()


async def upgrades(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for HTTP/2 by a header, and leave."""
    async with target.wire() as (reader, writer):
        writer.write(target.request("GET", "/livez").replace(b"Content-Length: 0", b"Upgrade: h2c"))
        await reader.read(1000)


Abuse = Callable[[Target, int], Awaitable[None]]

#: Each kind, and its connections in all; those of HELD are open at a time.
HELD = ("idle",)
KINDS: dict[str, tuple[Abuse, int]] = {
    "nothing": (nothing, 10),
    "cookies": (cookies, 200),
    "idle": (idle, 1200),
    "chunks": (chunks, 8),
    "upgrades": (upgrades, 400),
    "pipelined": (pipelined, 200),
    "unread": (unread, 2000),
    "not_reading": (not_reading, 200),
    "halves": (halves, 1000),
    "questions": (questions, 1000),
    "polls": (polls, 1000),
    "streams": (streams, 1000),
}

#: Resets are last: without a proxy the service works on them for minutes.
KINDS |= {**BODY_KINDS, "resets": (resets, 200)}


#: Kinds of a quick run, and its share of the connections.
QUICKLY, QUICK_SHARE = ("nothing", "pipelined"), 0.02


def probe(url: str, pipe: Connection) -> None:
    """Ask /livez at a steady rate from a process of its own until told; counts from when it was due, to 30 s."""
    taken = []
    with httpx2.Client(base_url=url, timeout=30) as client:
        client.get("/livez").raise_for_status()
        pipe.send("begun")
        due = time.monotonic()
        while not pipe.poll(max(0.0, due - time.monotonic())):
            with suppress(httpx2.TimeoutException):
                client.get("/livez").raise_for_status()
            taken.append(1000 * (time.monotonic() - due))
            due = max(due + PROBE_S, time.monotonic())
    pipe.send(taken)


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Probe meanwhile; what was taken is in the list at the end."""
    taken: list[float] = []
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=probe, args=(url, theirs), daemon=True)
    process.start()
    ours.recv()
    yield taken
    ours.send("stop")
    if ours.poll(60):
        taken.extend(ours.recv())
    process.join(10)


async def rest(process: Processes, fds: int, cpu: float) -> float | None:
    """Return the seconds until the processes are at rest; None if they do not come to rest."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < GIVE_UP_S:
        used, at = process.cpu_s(), time.monotonic()
        await asyncio.sleep(1)
        rate = (process.cpu_s() - used) / (time.monotonic() - at)
        if process.fds() <= fds + REST_FDS and process.half_closed() == 0 and rate <= cpu + REST_CPU:
            return round(passed, 1)
    return None


async def measure(target: Target, process: Processes, abuse: Abuse, connections: int, at_a_time: int) -> dict[str, Any]:
    """Run one kind of abuse, and see what it costs."""
    fds, used, began = process.fds(), process.cpu_s(), time.monotonic()
    await asyncio.sleep(1)
    cpu = (process.cpu_s() - used) / (time.monotonic() - began)
    made = refused = 0
    turns = asyncio.Semaphore(at_a_time)

    async def one(number: int) -> None:
        nonlocal made, refused
        async with turns:
            try:
                await abuse(target, number)
                made += 1
            except OSError:
                refused += 1

    with probing(target.url) as taken:
        used, began = process.cpu_s(), time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_S):
                await asyncio.gather(*[one(number) for number in range(connections)])
        seconds = time.monotonic() - began
        resting = await rest(process, fds + PROBES, cpu)
    cuts = statistics.quantiles(taken or [0, 0], n=100, method="inclusive")
    return {
        "connections": made,
        "refused": refused,
        "seconds": round(seconds, 1),
        "livez_p50_ms": round(cuts[49], 1),
        "livez_p99_ms": round(cuts[98], 1),
        "cpu_s": round(process.cpu_s() - used, 1),
        "rest_s": resting,
        "api_mb": process.resident_mb(),
        "fds": process.fds(),
        "half_closed": process.half_closed(),
    }


async def open_job(url: str) -> str:
    """Submit a job that stays open while this runs: its results wait to be dropped. Return its id."""
    lines = [b'{"results_window": 1000}', *[QUESTION] * 3000]
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        kind = {"Content-Type": "application/x-ndjson"}
        response = await client.post("/v1/jobs", content=b"\n".join(lines), headers=kind)
        return str(response.raise_for_status().json()["id"])


async def run(url: str, only: list[str], share: float, *, behind_nginx: bool) -> dict[str, Any]:
    """Every kind, one after the other."""
    process, figures = Processes(Target(url).port), {}
    with nginx_before(url) if behind_nginx else nullcontext(url) as asked:
        target = Target(asked)
        target.job = await open_job(url)
        for name in only:
            abuse, connections = KINDS[name]
            made = max(1, int(connections * share))
            at_a_time = made if name in HELD else AT_A_TIME
            figures[name] = await measure(target, process, abuse, made, at_a_time)
            print(json.dumps({name: figures[name]}), flush=True)
    # The service may still be busy with what callers left behind. Its figures are kept without this answer.
    with suppress(httpx2.TimeoutException):
        async with httpx2.AsyncClient(base_url=url) as client:
            await client.delete(f"/v1/jobs/{target.job}")
    return figures


def is_kept(found: dict[str, Any]) -> bool:
    """Whether one kind keeps what is promised."""
    return found["livez_p99_ms"] < LIVEZ_P99_MS and found["rest_s"] is not None and found["rest_s"] <= REST_S


def main() -> int:
    """Measure, keep the figures, and say which kinds keep what is promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running service of this machine; one of its own if not given")
    parser.add_argument("--quick", action="store_true", help="few kinds and connections, no figures kept")
    parser.add_argument(
        "--only", default=",".join(QUICKLY if is_quick() else KINDS), help="kinds of abuse, comma-separated"
    )
    parser.add_argument("--nginx", action="store_true", help="put nginx in front, as docs/23-security.md says")
    arguments = parser.parse_args()
    only, share = arguments.only.split(","), QUICK_SHARE if arguments.quick else 1.0
    if arguments.url:
        figures = asyncio.run(run(arguments.url, only, share, behind_nginx=arguments.nginx))
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            service(Path(folder), target="null", model="null", log_level="warning", api_processes=1) as running,
        ):
            figures = asyncio.run(run(running.url, only, share, behind_nginx=arguments.nginx))
    keep("abuse", figures)
    broken = [name for name, found in figures.items() if not is_kept(found)]
    promise = f"/livez p99 < {LIVEZ_P99_MS:g} ms, at rest within {REST_S:g} s"
    print(f"NOT kept by {', '.join(broken)}:" if broken else "kept by all:", promise)
    return 1 if broken and not is_quick() else 0


if __name__ == "__main__":
    sys.exit(main())
