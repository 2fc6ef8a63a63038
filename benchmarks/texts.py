"""Embeddings and classification: texts/s of Corelane, of LitServe and of a plain loop, with the same network.

    python benchmarks/texts.py [FILE.json.gz] [--rounds 3] [--seconds 8] [--bulk 4000] [--tasks embedding] [--quick]

The network is all-MiniLM-L6-v2; the classifier is the same with a head of random weights. Texts are the questions and
sentences of a SQuAD-format file. LitServe runs in the virtual environment that ``make bench-peers`` makes, with the
checkpoint by transformers and with the file that Corelane compiled; the loop is that of sentence-transformers, in a
process a core. All compute in the number format that ``auto`` chose. In bulk Corelane gets one job, and its results are
read. LitServe has no jobs: its bulk is a text a request, at the number of callers where it is fastest. A client of it
that sends lists has a row of its own: 4 callers with 32 texts a request.
"""

import argparse
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.bench_peers import free_ports
from benchmarks.callers import Ask, closed_loop
from benchmarks.harness import (
    ROOT,
    Connection,
    Figures,
    Serving,
    about_machine,
    cpu_us_since,
    environment,
    is_quick,
    medians,
    parser_of,
    serving,
    table,
)
from benchmarks.peers.catalogue import LITSERVE, starting
from benchmarks.peers.outcome import CALLERS, rotated
from benchmarks.peers.peer import ENVIRONMENT, running
from benchmarks.peers.servers.given import Given
from benchmarks.questions import Question, questions_of
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import Artifact
from corelane.engine.cores import cpu_slots
from corelane.settings import read_settings

#: The names that the models are compiled and served under, by task.
MODELS = {"embedding": "texts-embedding", "classification": "texts-classification"}

#: The ways that LitServe is run in, and the loop.
WAYS = {"LitServe, transformers": "transformers", "LitServe, compiled file": "compiled"}
OURS, LOOP = "Corelane", "loop"

#: Texts of a request, and callers, where LitServe is asked for many texts.
MANY, MANY_CALLERS = 32, 4

#: Most results of a page.
PAGE = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """What every service is asked: texts, and for how long."""

    texts: list[str]
    seconds: float

    @property
    def lone(self) -> list[Question]:
        """The texts, one for a request."""
        return [Question(text, "") for text in self.texts]


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(__doc__, takes_questions=True)
    parser.add_argument("--rounds", type=int, default=1 if is_quick() else 3)
    parser.add_argument("--seconds", type=float, default=0.2 if is_quick() else 8.0, help="of each number of callers")
    parser.add_argument("--bulk", type=int, default=12 if is_quick() else 4000, help="texts in bulk")
    parser.add_argument("--tasks", default=",".join(MODELS), help="embedding, classification")
    return parser.parse_args()


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
    classifier, embedder = folder / "classification", base
    loader = transformers.AutoModelForSequenceClassification
    config.update(about)
    network = loader.from_config(config) if is_quick() else loader.from_pretrained(base, config=config)
    network.save_pretrained(classifier)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(classifier)
    if is_quick():
        embedder = folder / "embedding"
        transformers.AutoModel.from_config(config).save_pretrained(embedder)
        transformers.AutoTokenizer.from_pretrained(base).save_pretrained(embedder)
    return {"embedding": embedder, "classification": classifier}


def compile_all(checkpoints: dict[str, Path], tasks: Sequence[str], data: Path) -> dict[str, Artifact]:
    """Compile the model of each task for a service on a folder."""
    for task in tasks:
        argv = [sys.executable, "-m", "compile", str(checkpoints[task]), "--name", MODELS[task]]
        argv += ["--dtype", "fp32", "--buckets", "2x64"] if is_quick() else []
        subprocess.run(argv, cwd=ROOT, env=environment(data_dir=data), check=True, capture_output=True)
    return {task: find_artifact(data / "artifacts", MODELS[task], "cpu") for task in tasks}


def measure_ours(service: Serving, model: str, asked: Asked, bulk: Sequence[str]) -> Figures:
    """Measure lone texts and one job of Corelane."""

    def make_ask() -> Ask:
        connection = Connection(service.url)

        def ask(text: Question) -> str:
            body = orjson.dumps({"model": model, "text": text.question})
            job = connection.call("POST", "/v1/jobs", body, Prefer="wait=60")
            return has_output(job["results"][0])

        return ask

    figures = by_callers(make_ask, asked)
    connection = Connection(service.url)
    items = [{"text": text} for text in bulk]
    spent, began, results, after = service.cpu_s(), time.perf_counter(), [], "0"
    body = orjson.dumps({"model": model, "items": items})
    job = connection.call("POST", "/v1/jobs", body)["id"]
    connection.finish(job)
    while after:
        page = connection.call("GET", f"/v1/jobs/{job}/results?limit={PAGE}&after={after}")
        results += page["data"]
        after = page["next"] if page["has_more"] else ""
    figures["bulk"] = len(bulk) / (time.perf_counter() - began)
    figures |= cpu_us_since(spent, service, len(bulk), "bulk_")
    if len([has_output(result) for result in results]) != len(bulk):
        raise RuntimeError(f"{len(results)} results of {len(bulk)} texts")
    return figures


def has_output(result: dict[str, Any]) -> str:
    """Return the name of a result's output; raise RuntimeError if it has none."""
    for name in ("embedding", "labels"):
        if result.get(name):
            return name
    raise RuntimeError(str(result))


def measure_litserve(given: Given, way: str, asked: Asked) -> Figures:
    """Measure LitServe."""
    peer = replace(LITSERVE, commands=starting("lit_texts"))
    with running(replace(peer, variables={"PEER_WAY": way}), replace(given, port=free_ports(1))) as ready:
        url = ready()[0]

        def make_ask() -> Ask:
            connection = Connection(url)

            def ask(text: Question) -> str:
                parts = text.question.split("\0")
                body: dict[str, Any] = {"texts": parts} if len(parts) > 1 else {"text": text.question}
                found = connection.call("POST", "/predict", orjson.dumps(body))["data"]
                if len(found) != len(parts):
                    raise RuntimeError(str(found))
                return "found"

            return ask

        figures = by_callers(make_ask, asked)
        parts = [asked.texts[at : at + MANY] for at in range(0, len(asked.texts) - MANY + 1, MANY)]
        questions = [Question("\0".join(each), "") for each in parts] or asked.lone
        load = closed_loop(make_ask, questions, MANY_CALLERS, seconds=asked.seconds, warm_up_s=1.0)
        lists = load.figures()["per_s"] * (MANY if parts else 1)
        return figures | {"bulk": max(figures.values()), "lists of 32": lists}


def by_callers(make_ask: Callable[[], Ask], asked: Asked) -> Figures:
    """Return texts/s by the number of callers; raise RuntimeError if one failed."""
    found: Figures = {}
    for callers in (CALLERS[0],) if is_quick() else CALLERS:
        load = closed_loop(make_ask, asked.lone, callers, seconds=asked.seconds, warm_up_s=1.0)
        if load.failures:
            raise RuntimeError(load.failures[0])
        found[f"{callers} callers"] = load.figures()["per_s"]
    return found


def measure_loop(given: Given, bulk: Sequence[str], folder: Path) -> Figures:
    """Measure the loop, in a process a core that reads its share."""
    started = []
    for number in range(given.workers):
        file = folder / f"texts-{number}.json"
        file.write_text(json.dumps(bulk[number :: given.workers]))
        argv = [sys.executable, "-m", "benchmarks.peers.servers.text_loop", given.artifact, given.checkpoint, str(file)]
        env = environment() | ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
    try:
        for process in started:
            if next(process.stdout or iter(())).strip() != "ready":
                raise RuntimeError("the loop did not start")
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        seconds = max(float(next(process.stdout or iter(()))) for process in started)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return {"bulk": len(bulk) / seconds}


def main() -> int:
    """Measure all and print a table for each task."""
    options = read_options()
    tasks = options.tasks.split(",")
    texts = texts_of(options.file, options.bulk)
    asked = Asked(texts, options.seconds)
    ways = {} if is_quick() else WAYS
    if ways and not LITSERVE.is_installed():
        raise SystemExit("LitServe is not installed: run `make bench-peers`, or benchmarks/peers/install.sh")
    with tempfile.TemporaryDirectory(prefix="texts-") as name:
        folder = Path(name)
        data = folder / "data"
        artifacts = compile_all(checkpoints := save_checkpoints(folder), tasks, data)
        for task in tasks:
            given = Given(
                artifact=str(artifacts[task].path),
                checkpoint=str(checkpoints[task]),
                port=0,
                workers=1 if is_quick() else len(cpu_slots()),
                batch=MANY,
                wait_ms=2,
                folder=str(folder / "peer"),
            )
            found: dict[str, list[Figures]] = {name: [] for name in (OURS, *ways, LOOP)}
            for number, each in itertools.product(range(options.rounds), range(len(found))):
                name = rotated(list(found), number)[each]
                if name == OURS:
                    with serving(data, OURS, model=MODELS[task]) as running_one:
                        figures = measure_ours(running_one, MODELS[task], asked, texts)
                elif name == LOOP:
                    figures = measure_loop(given, texts, folder)
                else:
                    figures = measure_litserve(given, ways[name], asked)
                print(json.dumps({"task": task, "of": name, "round": number + 1} | figures), flush=True)
                found[name].append(figures)
            middle = {name: medians(rounds) for name, rounds in found.items()}
            dtype = artifacts[task].manifest.dtype
            print(f"\n{about_machine()}, {dtype}\n\n{table(middle, f'{task}, texts/s')}\n", flush=True)
            for name in ways:
                ours_bulk, its = middle[OURS]["bulk"], middle[name]
                print(f"bulk: {ours_bulk / its['bulk']:.2f} times {name}", end="; ")
                print(f"{ours_bulk / its['lists of 32']:.2f} times its lists", flush=True)
    return 0


if __name__ == "__main__":
    # A run that is ended stops what it started, as one that Ctrl-C ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
