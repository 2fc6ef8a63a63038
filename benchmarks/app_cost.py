"""What one request costs the application without a server: CPU µs of a `/livez`, of a lone job and a lone answer, and
of one among others.

    python benchmarks/app_cost.py [--before CHECKOUT] [--rounds 10] [--requests 200] [--quick]

The application runs in a process of its own and is called as a server would call it, beside a service with the null
engine. The lone job is a `POST /v1/jobs` with `Prefer: wait`, the answer a `POST /v1/answers`; among others, ten are
under way. With a checkout of another state (with its `.venv`) both are measured in turn, round by round. CPU time is
the process' own. At the end a sample for each millisecond of CPU time says where that of the lone job goes.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

CHECKOUT = Path(__file__).parent.parent

#: The role of this file beside the measurement: `--driven REDIS_URL`, run by a checkout's own interpreter.
DRIVEN = "--driven"

#: A checkout's own packages come first where its interpreter runs this file.
sys.path.insert(0, str(Path.cwd() if DRIVEN in sys.argv else CHECKOUT))

BODY = json.dumps({"question": "What is the number?", "context": "The number is 7. " * 8}).encode()
HEADERS = [(b"host", b"127.0.0.1"), (b"user-agent", b"app-cost"), (b"accept", b"*/*")]
OF_JOB = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY)), (b"prefer", b"wait=30")]

#: Requests: what they ask, and how many are under way at a time.
KINDS = {
    "GET /livez": ("/livez", 1),
    "lone job": ("/v1/jobs", 1),
    "job among ten": ("/v1/jobs", 10),
    "lone answer": ("/v1/answers", 1),
    "answer among ten": ("/v1/answers", 10),
}

#: Where CPU time goes: the innermost frame of a sample that is in one of these files counts.
PLACES = (
    ("FastAPI and Starlette", ("/fastapi/", "/starlette/")),
    ("the log line", ("/structlog/", "/logging/", "corelane/log.py")),
    ("trips to Redis", ("corelane/store/link/",)),
    ("the answer", ("store/jobs/records.py", "store/jobs/results.py", "domain/timing.py", "domain/usage.py")),
    ("the body", ("corelane/domain/jobs.py",)),
    ("making the job", ("corelane/submitting/", "corelane/store/", "corelane/domain/")),
    ("our layers and routes", ("/api/",)),
)


async def ask(app: Any, path: str) -> None:
    """Call the application once, as a server does."""
    is_job, sent = path != "/livez", iter([{"type": "http.request", "body": BODY, "more_body": False}])
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST" if is_job else "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": HEADERS + OF_JOB if is_job else HEADERS,
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8000),
    }
    answered: list[Any] = []

    async def receive() -> Any:
        message = next(sent, None)
        return message or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answered.append(message)

    await app(scope, receive, send)
    if answered[0]["status"] != 200:
        raise RuntimeError(str(answered))


async def ask_often(app: Any, path: str, times: int, at_once: int) -> None:
    """Ask so many times, each in a task of its own."""

    async def ask_on(own: int) -> None:
        for _ in range(own):
            await asyncio.create_task(ask(app, path))

    await asyncio.gather(*(ask_on(times // at_once) for _ in range(at_once)))


@contextlib.contextmanager
def sampling(found: Counter[str]) -> Iterator[None]:
    """Count, for each millisecond of CPU time, where it goes."""

    def look(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            file = frame.f_code.co_filename
            place = next((name for name, parts in PLACES if any(part in file for part in parts)), None)
            if place is not None and file != __file__:
                found[place] += 1
                return
            frame = frame.f_back
        found["the rest: the event loop, tasks"] += 1

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run_driven(redis_url: str) -> None:
    """Read `KIND TIMES IS_SAMPLED` lines, do what each says, and answer with a line of JSON."""
    import uvloop

    from api.app import create_app
    from corelane.settings import Settings

    async def run() -> None:
        app = create_app(Settings().model_copy(update={"redis_url": redis_url}))
        async with app.router.lifespan_context(app):
            while line := await asyncio.to_thread(sys.stdin.readline):
                kind, times, is_sampled = json.loads(line)
                path, at_once = KINDS[kind]
                found: Counter[str] = Counter()
                used_s = time.process_time()
                with sampling(found) if is_sampled else contextlib.nullcontext():
                    await ask_often(app, path, times, at_once)
                taken = (time.process_time() - used_s) / times * 1e6
                sys.stdout.write(json.dumps([taken, found]) + "\n")
                sys.stdout.flush()

    uvloop.run(run())


class Driven:
    """The application of a checkout, in a process of its own."""

    def __init__(self, checkout: Path, redis_url: str, out: Path) -> None:
        from benchmarks.api_cost import SETTINGS, environment, python

        self._process = subprocess.Popen(
            [python(checkout), __file__, DRIVEN, redis_url],
            cwd=checkout,
            env=environment(**SETTINGS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out.open("wb"),
            text=True,
        )
        self.taken: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def run(self, kind: str, times: int, *, is_sampled: bool = False) -> tuple[float, dict[str, int]]:
        """Have it called; return the CPU µs of one request, and what was sampled."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, times, is_sampled]) + "\n")
        self._process.stdin.flush()
        taken, found = json.loads(self._process.stdout.readline())
        return taken, found

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def table(title: str, rows: dict[str, dict[str, float]], states: list[str]) -> str:
    """Return a table of figures by state."""
    lines = [f"| {title} | {' | '.join(states)} |", f"|---|{'---|' * len(states)}"]
    lines += [f"| {name} | {' | '.join(f'{row.get(each, 0):.0f}' for each in states)} |" for name, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure, and print two tables."""
    if DRIVEN in sys.argv:
        run_driven(sys.argv[-1])
        return
    from benchmarks.runs import is_quick, keep, service

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of another state, measured in turn")
    parser.add_argument("--rounds", type=int, default=2 if is_quick() else 10)
    parser.add_argument("--requests", type=int, default=20 if is_quick() else 200, help="requests of each kind a round")
    parser.add_argument("--quick", action="store_true", help="few requests, no figures kept")
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before.resolve()} if arguments.before else {}
    checkouts["now"] = CHECKOUT
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder) / "service", target="null", model="null", log_level="warning") as running,
    ):
        driven = {
            state: Driven(checkout, running.redis_url, Path(folder) / f"{state}.log")
            for state, checkout in checkouts.items()
        }
        for number in range(arguments.rounds + 1):
            for each in driven.values():
                for kind in KINDS:
                    taken, _ = each.run(kind, arguments.requests)
                    if number:  # the first requests load what later ones use
                        each.taken[kind].append(taken)
        costs = {kind: {state: statistics.median(each.taken[kind]) for state, each in driven.items()} for kind in KINDS}
        sampled: dict[str, dict[str, float]] = {}
        for state, each in driven.items():
            _, found = each.run("lone job", arguments.requests * arguments.rounds, is_sampled=True)
            for place, count in sorted(found.items()):
                us = count / sum(found.values()) * costs["lone job"][state]
                sampled.setdefault(place, {})[state] = round(us, 1)
            each.end()
    print(table("CPU µs a request", costs, list(driven)))
    print()
    print(table("of a lone job", sampled, list(driven)))
    keep("app_cost", {"cpu_us": costs, "of_a_lone_job": sampled})


if __name__ == "__main__":
    main()
