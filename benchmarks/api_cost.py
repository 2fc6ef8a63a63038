"""What a request costs the API process: CPU µs of a `/livez`, of a lone job and of a lone answer.

    python benchmarks/api_cost.py [--before CHECKOUT] [--rounds 20] [--requests 200] [--quick]

A service of each state with the null engine and one core, called over one connection that is kept, in turn, round by
round, so that a busy moment hits both. CPU time is the API process' own, of all its threads, so that neighbours on the
machine count little. To see where it goes, run the API under a profiler: `python -m cProfile -m corelane api`.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import (
    Connection,
    Figures,
    Serving,
    checkouts,
    is_quick,
    measure_in_turn,
    parser_of,
    serving,
)

ITEM = orjson.dumps({"question": "What is the number?", "context": "The number is 7. " * 8})

#: What is asked: method, path, body, headers.
KINDS: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "GET /livez": ("GET", "/livez", b"", {}),
    "lone job": ("POST", "/v1/jobs", ITEM, {"Prefer": "wait=30"}),
    "lone answer": ("POST", "/v1/answers", ITEM, {}),
}


def cpu_us(pid: int) -> float:
    """Return the CPU time of a process so far, of all its threads, in microseconds."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1000


def measure(running: Serving, requests: int) -> Figures:
    """Return the CPU µs of one request of each kind."""
    [pid], connection, found = running.pids("api"), Connection(running.url), {}
    for kind, (method, path, body, headers) in KINDS.items():
        used = cpu_us(pid)
        for _ in range(requests):
            connection.call(method, path, body, **headers)
        found[kind] = (cpu_us(pid) - used) / requests
    return found


def main() -> int:
    """Measure, and print a table."""
    parser = parser_of(__doc__, rounds=20)
    parser.add_argument("--requests", type=int, default=5 if is_quick() else 200, help="requests of each kind a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="api-cost-") as folder, ExitStack() as stack:
        services = {}
        for name, checkout in checkouts(options.before).items():
            data = Path(folder) / name
            started = serving(data, name, checkout, target="null", model="null", cores=1, api_processes=1)
            services[name] = stack.enter_context(started)
            measure(services[name], options.requests)  # the first requests load what later ones use
        measure_in_turn(list(services), options.rounds, lambda name: measure(services[name], options.requests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
