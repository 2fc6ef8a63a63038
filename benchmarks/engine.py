"""The engine on one core: questions per second of CPU time, for this checkout and another, in turn in one run.

    python benchmarks/engine.py [FILE.json.gz] [--before CHECKOUT] [--rounds 5] [--limit 100] [--quick]

The built-in model as each checkout compiles it, over the questions of a SQuAD-format file, in a process for each
checkout, pinned to the same CPU. CPU time counts, as neighbours on the machine do not show in it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import (
    Figures,
    checkouts,
    compiled,
    environment,
    hear,
    is_quick,
    measure_in_turn,
    parser_of,
    python_of,
)
from benchmarks.questions import Question, questions_of
from corelane.engine.cores import CoreSlot, cpu_slots

#: The program of a process: load a model on some CPUs, and answer all questions once for each line on standard input.
ENGINE = """
import json, os, sys, time
from pathlib import Path
os.sched_setaffinity(0, json.loads(sys.argv[3]))
import torch
from corelane.artifacts.finding import find_artifact
from corelane.engine.runner import open_backend
from corelane.engine.runner import Runner
from corelane.tasks.question_answering.engine.task import QuestionQuery
from corelane.tasks.question_answering.options import AnswerOptions
torch.set_num_threads(1)
runner = Runner.open(open_backend("cpu"), find_artifact(Path(sys.argv[1]), sys.argv[2], "cpu"))
runner.warm_up()
queries = [QuestionQuery(*each, AnswerOptions(no_answer=False)) for each in json.loads(sys.stdin.readline())]
print("{}", flush=True)
names = ("windows", "tokens", "padding")
for _ in sys.stdin:
    used, before = time.process_time(), [getattr(runner.work, name) for name in names]
    runner.results_of(queries)
    work = {name: getattr(runner.work, name) - was for name, was in zip(names, before)}
    print(json.dumps(work | {"cpu_s": time.process_time() - used}), flush=True)
"""


class Engine:
    """A process with the engine of a checkout in it, on one core, warm and waiting."""

    def __init__(self, checkout: Path, artifacts: Path, model: str, slot: CoreSlot, asked: Sequence[Question]) -> None:
        self.process = subprocess.Popen(
            [python_of(checkout), "-c", ENGINE, str(artifacts), model, json.dumps(sorted(slot.cpus))],
            cwd=checkout,
            env=environment() | slot.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps([(each.question, each.context) for each in asked]))

    def _say(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)

    def begin(self) -> None:
        """Have the process answer all questions; ``hear`` returns the figures of that round."""
        self._say("go")

    def hear(self) -> Figures:
        """Return the next message of the process: an empty one once it is warm, then the figures of each round."""
        return dict(hear(self.process))

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def engine(checkout: Path, artifacts: Path, model: str, slot: CoreSlot, asked: Sequence[Question]) -> Iterator[Engine]:
    """Run an engine for the length of a block."""
    made = Engine(checkout, artifacts, model, slot, asked)
    try:
        made.hear()
        yield made
    finally:
        made.end()


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=5, takes_questions=True)
    parser.add_argument("--limit", type=int, default=100, help="only the first questions of the file")
    options = parser.parse_args()
    asked, states = questions_of(options.file)[: 2 if is_quick() else options.limit], checkouts(options.before)
    with tempfile.TemporaryDirectory(prefix="engine-") as folder, ExitStack() as stack:
        engines = {}
        for name, checkout in states.items():
            made = compiled(Path(folder) / name, checkout)
            engines[name] = stack.enter_context(engine(checkout, *made, cpu_slots()[0], asked))

        def measured(name: str) -> Figures:
            engines[name].begin()
            found = engines[name].hear()
            padding = found["padding"] / (found["padding"] + found["tokens"])
            return {"questions_per_cpu_s": len(asked) / found["cpu_s"], "padding": padding, "windows": found["windows"]}

        measure_in_turn(list(states), options.rounds, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
