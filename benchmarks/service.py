"""What the service keeps of the engine's speed.

    python benchmarks/service.py [FILE.json.gz] [--rounds 5] [--limit N] [--quick]

The file's questions go as one job through a service on all cores, and are given to the engine alone, one pinned process
a core as a worker has it, in turn: so a busy moment of the machine hits both, and their ratio is what the service
keeps. CPU times are compared too, as neighbours on the machine do not count there. Right answers are those of the
service.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.engine import Engine, engine
from benchmarks.harness import ROOT, Connection, Figures, Serving, measure_in_turn, parser_of, serving
from benchmarks.questions import Question, questions_of, scores
from corelane.client import Client
from corelane.engine.cores import cpu_slots

#: Neighbouring questions that go to the same core: about what a worker claims.
NEIGHBOURS = 20


def ask_service(running: Serving, questions: Sequence[Question]) -> tuple[Figures, list[str]]:
    """Return the seconds and CPU seconds of a job of all questions, and its answers."""
    connection, used, began = Connection(running.url), sum(running.cpu_s().values()), time.perf_counter()
    body = {"items": [question.item() for question in questions], "options": {"no_answer": False}}
    job = connection.call("POST", "/v1/jobs", orjson.dumps(body))["id"]
    connection.finish(job)
    figures = {"service_s": time.perf_counter() - began, "service_cpu_s": sum(running.cpu_s().values()) - used}
    with Client(running.url) as client:
        return figures, [each.answer.text if each.answer else "" for each in client.iter_results(job)]


def ask_engines(engines: Sequence[Engine]) -> Figures:
    """Return the seconds until all cores have answered their share, and what they did for it in all."""
    began = time.perf_counter()
    for each in engines:
        each.begin()
    reports = [each.hear() for each in engines]
    figures = {"engine_s": time.perf_counter() - began}
    return figures | {f"engine_{name}": sum(report[name] for report in reports) for name in reports[0]}


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=5, takes_questions=True)
    parser.add_argument("--limit", type=int, help="only the first questions of the file")
    options = parser.parse_args()
    questions, slots = questions_of(options.file)[: options.limit], cpu_slots()
    with tempfile.TemporaryDirectory(prefix="service-") as folder, ExitStack() as stack:
        running = stack.enter_context(serving(Path(folder)))
        engines = []
        for slot in slots:
            mine = [each for at, each in enumerate(questions) if at // NEIGHBOURS % len(slots) == slot.index]
            made = engine(ROOT, running.data / "artifacts", running.model, slot, mine)
            engines.append(stack.enter_context(made))
        ask_service(running, questions[:64])

        def measured(_: str) -> Figures:
            figures, answers = ask_service(running, questions)
            figures |= ask_engines(engines)
            figures["service_to_engine"] = figures["engine_s"] / figures["service_s"]
            figures["service_to_engine_by_cpu"] = figures["engine_cpu_s"] / figures["service_cpu_s"]
            figures["service_per_s"] = len(questions) / figures["service_s"]
            figures["engine_per_s"] = len(questions) / figures["engine_s"]
            return figures | scores(questions, answers)

        measure_in_turn(["service and engine"], options.rounds, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
