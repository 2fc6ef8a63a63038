"""Embeddings and classification: texts a second, lone and in bulk, of this checkout and of another, in turn.

    python benchmarks/texts.py [FILE.json.gz] [--before CHECKOUT] [--rounds 3] [--seconds 8] [--bulk 4000]
        [--tasks embedding,classification] [--quick]

The network is all-MiniLM-L6-v2 as each checkout compiles it; the classifier is the same with a head of random weights.
Texts are the questions and sentences of a SQuAD-format file. In bulk they are one job, and its results are read. CPU is
that of the service's processes, in µs a text of the job.
"""

import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.callers import Ask, closed_loop
from benchmarks.harness import (
    Connection,
    Figures,
    Serving,
    checkouts,
    cpu_us_since,
    environment,
    is_quick,
    measure_in_turn,
    parser_of,
    python_of,
    serving,
)
from benchmarks.questions import Question, questions_of
from corelane.settings import read_settings

#: The names that the models are compiled and served under, by task.
MODELS = {"embedding": "texts-embedding", "classification": "texts-classification"}

#: Callers who each send their next text once the last is answered, and their seconds before what counts.
CALLERS, WARM_UP_S = (1, 16, 64), 1.0

#: Most results of a page.
PAGE = 500


def texts_of(file: Path | None, count: int) -> list[str]:
    """Return different texts: questions, and sentences of passages."""
    asked = questions_of(file)
    sentences = [part for each in asked for part in re.split(r"(?<=[.!?])\s+", each.context)]
    found = list(dict.fromkeys([*(each.question for each in asked), *sentences]))
    random.Random(0).shuffle(found)
    return found[:count]


def save_checkpoints(folder: Path) -> dict[str, Path]:
    """Save the checkpoint of each task; a quick run makes small random ones, with the same tokenizer."""
    import transformers

    from compile.tasks.feature_extraction.packaged import NAME, source_of

    base = Path(source_of(NAME, read_settings(data_dir=folder)))
    about: dict[str, Any] = {"num_labels": 3}
    config = transformers.AutoConfig.from_pretrained(base)
    if is_quick():
        about |= {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.set_seed(0)
    config.update(about)
    loader = transformers.AutoModelForSequenceClassification
    networks = {
        "classification": loader.from_config(config) if is_quick() else loader.from_pretrained(base, config=config)
    }
    if is_quick():
        networks["embedding"] = transformers.AutoModel.from_config(config)
    for task, network in networks.items():
        network.save_pretrained(folder / task)
        transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder / task)
    return {"embedding": base} | {task: folder / task for task in networks}


def compile_for(checkout: Path, checkpoints: dict[str, Path], tasks: Sequence[str], data: Path) -> None:
    """Compile the model of each task by a checkout, for its service on a folder."""
    for task in tasks:
        argv = [python_of(checkout), "-m", "compile", str(checkpoints[task]), "--name", MODELS[task]]
        argv += ["--dtype", "fp32", "--buckets", "2x64"] if is_quick() else []
        subprocess.run(argv, cwd=checkout, env=environment(data_dir=data), check=True, capture_output=True)


def has_output(result: dict[str, Any]) -> str:
    """Return the name of a result's output; raise RuntimeError if it has none."""
    for name in ("embedding", "labels"):
        if result.get(name):
            return name
    raise RuntimeError(str(result))


def measure(service: Serving, model: str, texts: Sequence[str], seconds: float) -> Figures:
    """Measure lone texts by the number of callers, and one job of all; raise RuntimeError if one failed."""

    def make_ask() -> Ask:
        connection = Connection(service.url)

        def ask(text: Question) -> str:
            body = orjson.dumps({"model": model, "text": text.question})
            return has_output(connection.call("POST", "/v1/jobs", body, Prefer="wait=60")["results"][0])

        return ask

    lone, figures = [Question(text, "") for text in texts], Figures()
    for callers in CALLERS[:1] if is_quick() else CALLERS:
        load = closed_loop(make_ask, lone, callers, seconds=seconds, warm_up_s=WARM_UP_S)
        if load.failures:
            raise RuntimeError(load.failures[0])
        figures |= {f"callers_{callers}_{name}": value for name, value in load.figures().items()}
    return figures | measure_bulk(service, model, texts)


def measure_bulk(service: Serving, model: str, texts: Sequence[str]) -> Figures:
    """Return the texts a second of one job, to the last of its results, and its CPU."""
    connection = Connection(service.url)
    spent, began, results, after = service.cpu_s(), time.perf_counter(), 0, "0"
    body = orjson.dumps({"model": model, "items": [{"text": text} for text in texts]})
    job = connection.call("POST", "/v1/jobs", body)["id"]
    connection.finish(job)
    while after:
        page = connection.call("GET", f"/v1/jobs/{job}/results?limit={PAGE}&after={after}")
        results += len([has_output(result) for result in page["data"]])
        after = page["next"] if page["has_more"] else ""
    if results != len(texts):
        raise RuntimeError(f"{results} results of {len(texts)} texts")
    figures = {"bulk_per_s": len(texts) / (time.perf_counter() - began)}
    return figures | cpu_us_since(spent, service, len(texts), "bulk_")


def main() -> int:
    """Measure all and print a table for each task."""
    parser = parser_of(__doc__, rounds=3, takes_questions=True)
    parser.add_argument("--seconds", type=float, default=0.2 if is_quick() else 8.0, help="of each number of callers")
    parser.add_argument("--bulk", type=int, default=12 if is_quick() else 4000, help="texts in bulk")
    parser.add_argument("--tasks", default=",".join(MODELS), help="embedding, classification")
    options = parser.parse_args()
    tasks, texts, states = options.tasks.split(","), texts_of(options.file, options.bulk), checkouts(options.before)
    with tempfile.TemporaryDirectory(prefix="texts-") as folder:
        checkpoints = save_checkpoints(Path(folder))
        for name, checkout in states.items():
            compile_for(checkout, checkpoints, tasks, Path(folder) / name)
        for task in tasks:

            def measured(name: str, model: str = MODELS[task]) -> Figures:
                # Named by its task, so that no service is lent for it.
                with serving(Path(folder) / name, f"{name} {model}", states[name], model=model) as service:
                    return measure(service, model, texts, options.seconds)

            print(f"\n{task}", flush=True)
            measure_in_turn(list(states), options.rounds, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
