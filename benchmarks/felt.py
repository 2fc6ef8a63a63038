"""What people feel: lone questions of 1, 16 and 64 callers, small jobs, a document; and their speed against bulk jobs.

    python benchmarks/felt.py [FILE.json.gz] [--before CHECKOUT] [--rounds 3] [--seconds 8]
        [--document 200000] [--quick]

The built-in model on all cores, questions of the public SQuAD test file. With ``--before`` the service of another
checkout is measured in turn with this one, by the same callers. CPU is that of the service's processes, in µs a
question.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.callers import closed_loop
from benchmarks.harness import (
    Connection,
    Figures,
    Serving,
    checkouts,
    cpu_us_since,
    is_quick,
    measure_in_turn,
    parser_of,
    serving,
)
from benchmarks.peers import asking
from benchmarks.questions import Question, questions_of

#: Callers who each send their next question once the last is answered.
CALLERS = (1, 16, 64)

#: Questions of a small job, and small jobs measured, one after the other.
SMALL, SMALL_JOBS = (5, 20), 12

#: Questions of a bulk job, and bulk jobs measured.
BULK_ITEMS, BULK_JOBS = 256, 2

OPTIONS = {"no_answer": False}


def job_s(connection: Connection, items: Sequence[dict[str, str]]) -> float:
    """Return the seconds that a job takes."""
    began = time.perf_counter()
    job = connection.call("POST", "/v1/jobs", orjson.dumps({"items": items, "options": OPTIONS}))
    connection.finish(job["id"])
    return time.perf_counter() - began


def jobs_s(connection: Connection, asked: Sequence[Question], size: int, count: int) -> list[float]:
    """Return the seconds that jobs of some size took, one after the other."""
    items = [each.item() for each in asked]
    starts = (number * size % max(1, len(items) - size) for number in range(count))
    return [job_s(connection, items[first : first + size]) for first in starts]


def document_of(asked: Sequence[Question], characters: int) -> str:
    """Join passages, repeated as needed, to a text of this length."""
    whole = "\n".join(dict.fromkeys(each.context for each in asked))
    return (whole * (characters // len(whole) + 1))[:characters]


def measure(running: Serving, asked: Sequence[Question], seconds: float, characters: int) -> Figures:
    """Return everything of one service."""
    connection = Connection(running.url)
    jobs_s(connection, asked, 2 if is_quick() else 64, 1)
    figures = Figures()
    for size in (2,) if is_quick() else SMALL:
        figures[f"job_of_{size}_s"] = statistics.median(
            jobs_s(connection, asked, size, 2 if is_quick() else SMALL_JOBS)
        )
    figures["document_s"] = job_s(
        connection, [{"question": asked[0].question, "context": document_of(asked, characters)}]
    )
    for count in (2,) if is_quick() else CALLERS:
        name, before = f"callers_{count}_", running.cpu_s()
        load = closed_loop(asking.corelane([running.url]), asked, count, seconds=seconds)
        figures |= cpu_us_since(before, running, load.done, name)
        if load.failures:
            raise SystemExit(f"{len(load.failures)} questions failed: {load.failures[0]}")
        figures |= {name + figure: value for figure, value in load.figures().items()}
    items, jobs = (4, 1) if is_quick() else (BULK_ITEMS, BULK_JOBS)
    before = running.cpu_s()
    figures["bulk_per_s"] = items * jobs / sum(jobs_s(connection, asked, items, jobs))
    figures |= cpu_us_since(before, running, items * jobs, "bulk_")
    return figures


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=3, takes_questions=True)
    quick = is_quick()
    parser.add_argument("--seconds", type=float, default=0.3 if quick else 8.0, help="of each number of callers")
    parser.add_argument("--document", type=int, default=3_000 if quick else 200_000, help="its characters")
    options = parser.parse_args()
    asked, states = questions_of(options.file), checkouts(options.before)
    with tempfile.TemporaryDirectory(prefix="felt-") as folder:

        def measured(name: str) -> Figures:
            with serving(Path(folder) / name, name, states[name]) as running:
                return measure(running, asked, options.seconds, options.document)

        measure_in_turn(list(states), options.rounds, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
