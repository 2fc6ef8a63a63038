"""Questions of a SQuAD file through a service on all cores, and through the engine alone on one: answers and speed.

python benchmarks/service.py [FILE.json.gz] [--limit N]
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import read_arguments
from corelane.artifacts import find_artifact, model_name
from corelane.bulk import answer_all
from corelane.cli.local import running_service
from corelane.cli.squad import Question, judge, summarise
from corelane.client import Client
from corelane.engine.cores import core_slot, cpu_slots, pin
from corelane.jobs import Item, Options
from corelane.settings import Settings

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)


def through_the_service(questions: list[Question]) -> dict[str, Any]:
    """EM, F1 and questions per second of a service that is warm."""
    items = [Item(id=question.id, question=question.question, context=question.context) for question in questions]
    with running_service(DATA) as url, Client(url) as client:
        list(answer_all(client, items[:64], options=OPTIONS))
        began = time.perf_counter()
        results = list(answer_all(client, items, options=OPTIONS))
        elapsed = time.perf_counter() - began
    scores = summarise(judge(question, result) for question, result in zip(questions, results, strict=True))
    return {"exact": scores.exact, "f1": scores.f1, "per_s": len(items) / elapsed, "cores": len(cpu_slots())}


def through_the_engine(questions: list[Question]) -> dict[str, Any]:
    """Questions per second of one pinned core, everything in one call."""
    slot = core_slot(0, "cpu")
    pin(slot)
    import torch

    from corelane.engine.backend import open_backend
    from corelane.engine.reading import Query
    from corelane.engine.runner import Runner

    torch.set_num_threads(1)
    settings = Settings(data_dir=DATA)
    artifact = find_artifact(settings.artifact_root, model_name(settings.model), settings.target)
    runner = Runner.open(open_backend(settings.target), artifact)
    runner.warm_up()
    queries = [Query(question.question, question.context, OPTIONS) for question in questions]
    began = time.perf_counter()
    runner.answer(queries)
    elapsed = time.perf_counter() - began
    work = runner.work
    return {
        "dtype": artifact.manifest.dtype,
        "per_s": len(queries) / elapsed,
        "windows": work.windows,
        "padding_share": work.padding / (work.padding + work.tokens),
    }


def main() -> int:
    """Measure both and keep the figures."""
    questions = read_arguments(__doc__)
    figures = {"questions": len(questions), "service": through_the_service(questions)}
    figures["engine_one_core"] = through_the_engine(questions)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "service.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
