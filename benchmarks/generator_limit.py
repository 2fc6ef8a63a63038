"""How much load the bench's generator offers before its own lateness shows, against a server that does nothing.

    python benchmarks/generator_limit.py [--quick]

Lone questions are sent to a process that answers each at once with the same bytes, at twice the rate each time, by one
process of the generator, until a run is invalid. Figures are of a machine that the server shares.
"""

import asyncio
import json
import multiprocessing
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.runs import is_quick, keep
from corelane.plugins.lab.figures import summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.http import read_head
from corelane.plugins.lab.load import Plan
from corelane.plugins.lab.schema import Load, Run
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.synthetic import make_questions

#: The first rate, and where it ends at the latest, in requests a second; each is measured for so many seconds.
FIRST_RATE, LAST_RATE, MEASURED_S = 100.0, 51_200.0, 5.0

#: The same in a quick run.
QUICKLY = (20.0, 40.0, 0.5)

BODY = b'{"index":0,"status":"succeeded","answer":{"text":"it","start":0,"end":2}}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def answer_all(listener: socket.socket) -> None:
    """Serve until killed."""
    asyncio.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    async with await asyncio.start_server(_answer, sock=listener, backlog=4096) as server:
        await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            _, headers = await read_head(reader)
            await reader.readexactly(int(headers.get("content-length", 0)))
            writer.write(ANSWER)
    writer.close()


def row_of(rate: float, run: Run) -> dict[str, Any]:
    """Return what a rate took."""
    late, latency = run.generator.lateness, run.latency
    return {
        "rate_per_s": rate,
        "achieved_per_s": round(run.generator.achieved_per_s, 1),
        "late_p95_ms": None if late is None else round(1000 * late.p95, 2),
        "latency_p50_ms": None if latency is None else round(1000 * latency.p50, 2),
        "cpu_share": round(run.generator.cpu_share, 3),
        "valid": not run.invalid,
    }


def measure(url: str) -> list[dict[str, Any]]:
    """Return a row for each rate, the first invalid one the last."""
    first, last, measured_s = QUICKLY if is_quick() else (FIRST_RATE, LAST_RATE, MEASURED_S)
    questions = make_questions("words=120", 50)
    rows = []
    rate = first
    while rate <= last:
        load = Load(kind="poisson", rate_per_s=rate)
        plan = Plan(load, warmup_s=measured_s / 5, duration_s=measured_s, tail_s=measured_s / 5, processes=1)
        rows.append(row_of(rate, summarise(run_load(Target(url), questions, plan))))
        print(json.dumps(rows[-1]), flush=True)
        if not rows[-1]["valid"] and not is_quick():
            break
        rate *= 2
    return rows


def main() -> int:
    """Measure, and keep the rows."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = multiprocessing.get_context("fork").Process(target=answer_all, args=(listener,), daemon=True)
    server.start()
    try:
        rows = measure(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.kill()
        server.join()
        listener.close()
    keep("generator_limit", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
