"""Questions of a SQuAD file through a service on all cores, and through the engine alone on the same cores.

    python benchmarks/service.py [FILE.json.gz] [--limit N] [--quick]

Both run interleaved, so a busy moment of the machine hits both; their ratio is what the service keeps of the
engine's speed. The engine runs in one pinned process a core, as a worker does, and is given its share all at once. The
CPU times a question took in all processes are compared too: neighbours on the machine do not count there.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.processes import cpu_seconds, descendants
from benchmarks.questions import read_arguments
from benchmarks.runs import Service, is_quick, keep, service
from corelane.artifacts.manifest import find_artifact, model_name
from corelane.client import Client
from corelane.client.bulk import answer_all
from corelane.domain.jobs import Item, Options, Result
from corelane.engine.cores import cpu_slots, pin
from corelane.quality.squad import Question, judge, summarise
from corelane.settings import Settings, read_settings

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)

#: Times that both are measured.
ROUNDS, QUICK_ROUNDS = 5, 1

#: Neighbouring questions that go to the same core: about a slice of the service.
NEIGHBOURS = 20

#: Processes of the service whose CPU time counts.
ROLES = ("api", "redis", "worker", "keeper", "flower")

#: First argument of a process that runs the engine on one core, before the core's index, folder and model.
ENGINE = "--engine"

Engine: TypeAlias = "subprocess.Popen[str]"


def service_cpu_s() -> float:
    """CPU time of the service so far."""
    used = cpu_seconds(descendants(os.getpid()))
    return sum(used.get(role, 0.0) for role in ROLES)


def ask_service(client: Client, questions: list[Question]) -> tuple[float, float, list[Result]]:
    """Seconds and CPU seconds until the service has answered all, and its answers."""
    items = [Item(id=question.id, question=question.question, context=question.context) for question in questions]
    used, began = service_cpu_s(), time.perf_counter()
    results: list[Result] = list(answer_all(client, items, options=OPTIONS))
    return time.perf_counter() - began, service_cpu_s() - used, results


@contextmanager
def engines(running: Service) -> Iterator[list[Engine]]:
    """One process a core with the engine and the service's model in it, warm and waiting for a line on its input."""
    environment = read_settings().environment()
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, ENGINE, str(slot.index), str(running.data), running.model, *sys.argv[1:]],
            env=environment | slot.environment,
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


def ask_engines(processes: list[Engine]) -> tuple[float, list[dict[str, Any]]]:
    """Seconds until all cores have answered their share, and what each did for it."""
    began = time.perf_counter()
    for process in processes:
        print("go", file=process.stdin, flush=True)
    reports = [hear(process) for process in processes]
    return time.perf_counter() - began, reports


def hear(process: Engine) -> dict[str, Any]:
    """Return an engine's next line."""
    line = process.stdout.readline() if process.stdout else ""
    return dict(json.loads(line or '{"gone": true}'))


def run_engine(index: int, data: Path, model: str, questions: list[Question]) -> None:
    """Be the engine of one core: answer its share for each line that comes in, and say what was done for it."""
    cores = len(cpu_slots())
    mine = [each for number, each in enumerate(questions) if number // NEIGHBOURS % cores == index]
    pin(cpu_slots()[index])
    import torch

    from corelane.engine.backends.registry import open_backend
    from corelane.engine.runner import Runner, RunnerLimits
    from corelane.engine.task import Query

    torch.set_num_threads(1)
    settings = Settings(data_dir=data)
    artifact = find_artifact(settings.artifact_root, model_name(model), settings.target)
    limits = RunnerLimits(settings.latency_target_s, settings.context_cache_tokens, settings.max_windows)
    runner = Runner.open(open_backend(settings.target), artifact, limits)
    runner.warm_up()
    queries = [Query(question.question, question.context, OPTIONS) for question in mine]
    print(json.dumps({"dtype": artifact.manifest.dtype}), flush=True)
    for _ in sys.stdin:
        used = time.process_time()
        runner.answer(queries)
        work = runner.work
        report = {name: getattr(work, name) for name in ("batches", "windows", "tokens", "padding")}
        print(json.dumps(report | {"cpu_s": time.process_time() - used, "dtype": artifact.manifest.dtype}), flush=True)


def measure(questions: list[Question]) -> dict[str, Any]:
    """Both, interleaved."""
    service_s: list[tuple[float, float]] = []
    engine_s: list[tuple[float, float]] = []
    with service(DATA) as running, Client(running.url) as client, engines(running) as processes:
        ask_service(client, questions[:64])
        for _ in range(QUICK_ROUNDS if is_quick() else ROUNDS):
            seconds, cpu_s, results = ask_service(client, questions)
            service_s.append((seconds, cpu_s))
            seconds, reports = ask_engines(processes)
            engine_s.append((seconds, sum(report["cpu_s"] for report in reports)))
    scores = summarise(judge(question, result) for question, result in zip(questions, results, strict=True))
    ratios = [engine / service for (service, _), (engine, _) in zip(service_s, engine_s, strict=True)]
    cpu_ratios = [engine / service for (_, service), (_, engine) in zip(service_s, engine_s, strict=True)]
    done = {name: sum(report[name] for report in reports) for name in ("batches", "windows", "tokens", "padding")}
    return {
        "questions": len(questions),
        "cores": len(processes),
        "dtype": reports[0]["dtype"],
        "exact": scores.exact,
        "f1": scores.f1,
        "service_per_s": len(questions) / statistics.median(seconds for seconds, _ in service_s),
        "engine_per_s": len(questions) / statistics.median(seconds for seconds, _ in engine_s),
        "service_to_engine": statistics.median(ratios),
        "service_to_engine_each": ratios,
        "service_to_engine_by_cpu_time": statistics.median(cpu_ratios),
        "padding_share": done["padding"] / (done["padding"] + done["tokens"]),
        "windows_a_batch": done["windows"] / done["batches"],
    }


def main() -> int:
    """Measure and keep the figures; or be one of the engines."""
    if sys.argv[1:2] == [ENGINE]:
        index, data, model = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
        del sys.argv[1:5]
        run_engine(index, data, model, read_arguments(__doc__))
        return 0
    figures = measure(read_arguments(__doc__))
    keep("service", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
