"""What the service keeps of the engine's speed and of the model's answers.

    python benchmarks/service.py [FILE.json.gz] [--rounds 5] [--limit N] [--eager] [--quick]

The file's questions go as one job through a service on all cores, and are given to the engine alone, one pinned process
a core as a worker has it, in turn: so a busy moment of the machine hits both, and their ratio is what the service
keeps. CPU times are compared too, as neighbours on the machine do not count there. Right answers are those of the
service. With ``--eager`` also those of the same network in plain PyTorch, eager fp32, one window at a time, with
nothing of our engine: the yardstick for answers.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import (
    MODEL,
    ROOT,
    Connection,
    Figures,
    Serving,
    environment,
    hear,
    is_quick,
    measure_in_turn,
    parser_of,
    serving,
)
from benchmarks.questions import Question, questions_of, scores
from corelane.artifacts.finding import find_artifact
from corelane.client import Client
from corelane.engine.cores import cpu_slots, pin
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions

#: Neighbouring questions that go to the same core: about what a worker claims.
NEIGHBOURS = 20

#: First argument of a process that runs the engine on one core, before the core's index, the artifacts and the model.
ENGINE = "--engine"

#: Windows and answers of the eager network: as long as the service has them.
LENGTH, STRIDE, LONGEST = 384, 128, 30

Engine: TypeAlias = "subprocess.Popen[str]"


def ask_service(running: Serving, questions: Sequence[Question]) -> tuple[Figures, list[str]]:
    """Return the seconds and CPU seconds of a job of all questions, and its answers."""
    connection, used, began = Connection(running.url), sum(running.cpu_s().values()), time.perf_counter()
    body = {"items": [question.item() for question in questions], "options": {"no_answer": False}}
    job = connection.call("POST", "/v1/jobs", orjson.dumps(body))["id"]
    connection.finish(job)
    figures = {"service_s": time.perf_counter() - began, "service_cpu_s": sum(running.cpu_s().values()) - used}
    with Client(running.url) as client:
        return figures, [each.answer.text if each.answer else "" for each in client.iter_results(job)]


@contextmanager
def engines(running: Serving, arguments: Sequence[str]) -> Iterator[list[Engine]]:
    """Run a process a core with the engine and the service's model in it, warm and waiting for a line on its input."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, ENGINE, str(slot.index), str(running.data), running.model, *arguments],
            env=environment() | slot.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for slot in cpu_slots()
    ]
    try:
        for process in processes:
            hear(process)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ask_engines(processes: Sequence[Engine]) -> Figures:
    """Return the seconds until all cores have answered their share, and what they did for it in all."""
    began = time.perf_counter()
    for process in processes:
        print("go", file=process.stdin, flush=True)
    reports = [hear(process) for process in processes]
    figures = {"engine_s": time.perf_counter() - began}
    return figures | {f"engine_{name}": sum(report[name] for report in reports) for name in reports[0]}


def run_engine(index: int, data: Path, model: str, questions: Sequence[Question]) -> None:
    """Be the engine of one core: answer its share for each line that comes in, and say what was done for it."""
    cores = len(cpu_slots())
    mine = [each for number, each in enumerate(questions) if number // NEIGHBOURS % cores == index]
    pin(cpu_slots()[index])
    import torch

    from corelane.engine.backends.registry import open_backend
    from corelane.engine.runner import Runner

    torch.set_num_threads(1)
    runner = Runner.open(open_backend("cpu"), find_artifact(data / "artifacts", model, "cpu"))
    runner.warm_up()
    queries = [Query(question.question, question.context, AnswerOptions(no_answer=False)) for question in mine]
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        used = time.process_time()
        runner.results_of(queries)
        work = {name: getattr(runner.work, name) for name in ("batches", "windows", "tokens", "padding")}
        print(json.dumps(work | {"cpu_s": time.process_time() - used}), flush=True)


def ask_eager(questions: Sequence[Question]) -> Figures:
    """Return EM, F1 and speed of the network in plain PyTorch."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    path = ROOT / "models" / MODEL
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForQuestionAnswering.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    began = time.perf_counter()
    with torch.inference_mode():
        answers = [eager_answer(model, tokenizer, question) for question in questions]
    found = scores(questions, answers) | {"per_s": len(questions) / (time.perf_counter() - began)}
    return {f"eager_{name}": value for name, value in found.items()}


def eager_answer(model: Any, tokenizer: Any, question: Question) -> str:
    """Return the text of the span with the best margin over null in all windows, found by trying every span."""
    import torch

    encoded = tokenizer(
        question.question,
        question.context,
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    best, text = float("-inf"), ""
    for window in range(len(encoded["input_ids"])):
        names = ("input_ids", "attention_mask", "token_type_ids")
        output = model(**{name: torch.tensor([encoded[name][window]]) for name in names})
        start, end = output.start_logits[0], output.end_logits[0]
        places = [i for i, part in enumerate(encoded.sequence_ids(window)) if part == 1]
        for s in places:
            last = min(s + LONGEST - 1, places[-1])
            e = s + int(end[s : last + 1].argmax())
            margin = float(start[s] + end[e] - start[0] - end[0])
            if margin > best:
                offsets = encoded["offset_mapping"][window]
                best, text = margin, question.context[offsets[s][0] : offsets[e][1]]
    return text


def main() -> int:
    """Measure and print; or be one of the engines."""
    engine = sys.argv[1:2] == [ENGINE]
    index, data, model = sys.argv[2:5] if engine else ("0", "", "")
    arguments = sys.argv[5 if engine else 1 :]
    parser = parser_of(__doc__, takes_questions=True)
    parser.add_argument("--rounds", type=int, default=1 if is_quick() else 5)
    parser.add_argument("--limit", type=int, help="only the first questions of the file")
    parser.add_argument("--eager", action="store_true", help="plain PyTorch's answers too; half a minute")
    options = parser.parse_args(arguments)
    questions = questions_of(options.file)[: options.limit]
    if engine:
        run_engine(int(index), Path(data), model, questions)
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="service-") as folder,
        serving(Path(folder)) as running,
        engines(running, arguments) as processes,
    ):
        ask_service(running, questions[:64])

        def measured(_: str) -> Figures:
            figures, answers = ask_service(running, questions)
            figures |= ask_engines(processes)
            figures["service_to_engine"] = figures["engine_s"] / figures["service_s"]
            figures["service_to_engine_by_cpu"] = figures["engine_cpu_s"] / figures["service_cpu_s"]
            figures["service_per_s"] = len(questions) / figures["service_s"]
            figures["engine_per_s"] = len(questions) / figures["engine_s"]
            return figures | scores(questions, answers)

        measure_in_turn(["service and engine"], options.rounds, measured)
    if options.eager or is_quick():
        print(json.dumps(ask_eager(questions), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
