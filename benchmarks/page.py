"""Corelane beside its peers, and beside another state of its own, as a page: speed, right answers, CPU by role.

    python benchmarks/page.py [FILE.json.gz] [--before CHECKOUT] [--rounds 3] [--seconds 6] [--limit 767] [--bulk 1500]
        [--tasks questions,embeddings] [--only NAME,NAME] [--out PAGE] [--quick]

``make bench-page`` makes the virtual environments of the peers that need one, and writes docs/performance.md. Every
service has the same network, cores, items and client; they run one after the other, in rotated order.
``peers/servers/`` says how each is served, ``peers/asking.py`` how each is asked. ``--only`` names peers to measure.
"""

import argparse
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.callers import CALLERS, closed_loop, lone, one_job
from benchmarks.harness import (
    AFTER,
    BEFORE,
    MODEL,
    ROOT,
    Figures,
    about_machine,
    checkouts,
    compiled,
    is_quick,
    medians,
    parser_of,
    serving,
    shown,
)
from benchmarks.peers import asking, onnx_file
from benchmarks.peers.catalogue import LIST, LOOP_IN_THREADS, QUESTIONS, TEXTS
from benchmarks.peers.outcome import Row, cpu_line, rotated, table
from benchmarks.peers.peer import Peer, running
from benchmarks.peers.servers.given import Given
from benchmarks.questions import DEFAULT_FILE, is_exact, questions_of, texts_of
from corelane.artifacts.finding import find_artifact
from corelane.cli.ports import port_is_free
from corelane.engine.cores import cpu_slots
from corelane.settings import read_settings

#: Ports for peers: below those that Linux gives to connections, which may take one before its server binds it.
PORTS = (20000, 29000)

#: Titles of Corelane's rows, by state.
OURS = {AFTER: "**Corelane**", BEFORE: "Corelane before"}

#: The name that the model of embeddings is compiled and served under.
VECTORS = "vectors"

#: What a peer can load of ours is TorchScript alone, and all are given the same file.
AS_PEERS = ("--format", "torchscript")

#: Packages whose versions the page names.
PACKAGES = ("torch", "tokenizers", "numpy", "celery", "redis")


@dataclass(frozen=True)
class Task:
    """What to ask of every service, the model to use, and how to ask Corelane."""

    title: str
    about: str
    #: The word for an item, and items as a lone request has them.
    item: str
    items: Sequence[Any]
    peers: Sequence[Peer]
    #: Most items that dynamic batching puts together.
    batch: int
    checkpoint: Path
    #: Corelane's artifacts by state, and the model's name there.
    artifacts: dict[str, Path]
    model: str
    asker: asking.Asker
    options: dict[str, Any]
    #: Returns what Corelane answered, from a result; what was answered to each item, from a request and its answer; and
    #: what the page says of all answers of a service, from these and from Corelane's.
    answer_of: Callable[[dict[str, Any]], Any]
    pairs_of: Callable[[Any, Any], Iterable[tuple[Any, Any]]]
    verdict: tuple[str, Callable[[dict[Any, Any], dict[Any, Any]], str]]


def question_task(options: argparse.Namespace, folder: Path) -> Task:
    """Return what is asked of the built-in model, which each checkout compiles."""
    questions = questions_of(options.file)[: options.limit]
    random.Random(0).shuffle(questions)
    states = checkouts(options.before).items()
    made = {name: compiled(folder / name, checkout, MODEL, *AS_PEERS) for name, checkout in states}
    return Task(
        title="Questions",
        about=f"""The built-in model, {len(questions)} questions of `{(options.file or DEFAULT_FILE).name}` with their
        passages, always answering. In bulk Corelane gets one job, and its results are read; {CALLERS[-1]} callers ask
        the others each question once.""",
        item="question",
        items=questions,
        peers=() if is_quick() else QUESTIONS,
        batch=8,
        checkpoint=ROOT / "models" / MODEL,
        artifacts={name: artifacts for name, (artifacts, _) in made.items()},
        model=made[AFTER][1],
        asker=asking.corelane,
        options={"options": {"no_answer": False}},
        answer_of=asking.text_of,
        pairs_of=lambda question, answer: [(question, answer)],
        verdict=("right", lambda mine, _: f"{100 * sum(is_exact(*each) for each in mine.items()) / len(mine):.1f} %"),
    )


def text_task(options: argparse.Namespace, folder: Path) -> Task:
    """Return what is asked of all-MiniLM-L6-v2, which each checkout compiles."""
    texts = texts_of(questions_of(options.file), options.bulk)
    checkpoint = str(save_checkpoint(folder / VECTORS))
    fast = ("--dtype", "fp32", "--buckets", "2x64") if is_quick() else AS_PEERS
    states = checkouts(options.before).items()
    return Task(
        title="Embeddings",
        about=f"""all-MiniLM-L6-v2, {len(texts)} questions and sentences of the same file. In bulk Corelane gets one
        job, and its results are read; {CALLERS[-1]} callers, or 8 with lists, ask the others for each text once, and
        each process of a loop gets its share at once. fastembed runs ONNX, llama.cpp GGUF, both in fp32.""",
        item="text",
        items=[[text] for text in texts],
        peers=(LOOP_IN_THREADS,) if is_quick() else TEXTS,
        batch=LIST,
        checkpoint=Path(checkpoint),
        artifacts={name: compiled(folder / name, checkout, checkpoint, *fast)[0] for name, checkout in states},
        model=VECTORS,
        asker=asking.texts(VECTORS),
        options={},
        answer_of=lambda result: [asking.vector_of(result)],
        pairs_of=lambda asked, vectors: zip(asked, np.asarray(vectors, np.float32), strict=True),
        verdict=("least cosine", lambda mine, ours: f"{min(cosine(mine[text], ours[text]) for text in mine):.4f}"),
    )


def save_checkpoint(folder: Path) -> Path:
    """Save all-MiniLM-L6-v2 with its ONNX file beside it; a quick run makes a small random network of it."""
    import transformers

    from compile.tasks.feature_extraction.packaged import NAME, source_of

    shutil.copytree(source_of(NAME, read_settings(data_dir=folder.parent)), folder)
    if is_quick():
        config = transformers.AutoConfig.from_pretrained(folder)
        config.update({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32})
        transformers.set_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    else:
        onnx_file.write(folder)
    return folder


#: What makes each task, by the name that ``--tasks`` gives it.
TASKS = {"questions": question_task, "embeddings": text_task}


def cosine(one: Any, other: Any) -> float:
    """Return the cosine of two vectors."""
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def free_ports(count: int) -> int:
    """Return the first of ``count`` consecutive free ports."""
    while True:
        port = random.randrange(*PORTS)
        if all(port_is_free("127.0.0.1", port + more) for more in range(count)):
            return port


def measure(task: Task, name: str, peer: Peer | None, options: argparse.Namespace, answers: dict[Any, Any]) -> Figures:
    """Measure a peer, or Corelane in some state for None, with what all are given; keep its answers in bulk."""
    folder, seconds = options.folder / f"{task.item}-{name}", options.seconds
    if peer is None:
        shutil.copytree(task.artifacts[name], folder / "artifacts", dirs_exist_ok=True)
        lends = "" if task.model != VECTORS else f" {VECTORS}"
        with serving(folder, name + lends, checkouts(options.before)[name], model=task.model) as service:
            figures = lone(task.asker([service.url]), task.items, CALLERS, seconds, service)
            body = {"model": task.model, "items": [asking.item_of(each) for each in task.items], **task.options}
            bulk, results = one_job(service, body)
        answered = list(zip(task.items, map(task.answer_of, results), strict=True))
    else:
        workers = peer.processes or len(cpu_slots())
        given = Given(
            artifact=str(find_artifact(task.artifacts[AFTER], task.model, "cpu").path),
            checkpoint=str(task.checkpoint),
            port=free_ports(workers),
            workers=workers,
            batch=task.batch,
            wait_ms=2,
            folder=str(folder),
        )
        with running(peer, given) as ready:
            make_ask = peer.asker(ready())
            figures = lone(make_ask, task.items, peer.callers, seconds, None)
            sent = peer.bulk(task.items, workers)
            load = closed_loop(make_ask, sent, min(peer.connections, len(sent)), requests=len(sent))
        answered, failed = load.answered, {"bulk_failed": load.figures().get("failed", 0.0)}
        bulk = {"bulk_per_s": len(task.items) * len(answered) / len(sent) / load.seconds} | failed
    for item, answer in answered:
        answers.update(task.pairs_of(item, answer))
    return figures | bulk


def section(task: Task, options: argparse.Namespace) -> str:
    """Measure all services of a task in turn, and return its part of the page."""
    wanted = [peer for peer in task.peers if options.only is None or peer.name in options.only.split(",")]
    peers = dict.fromkeys(task.artifacts) | {peer.name: peer for peer in wanted if peer.is_installed()}
    rows = {name: Row(f"{peer.title} ({peer.version()})" if peer else OURS[name]) for name, peer in peers.items()}
    for number in range(options.rounds):
        for name in rotated(list(rows), number):
            rows[name].rounds.append(measure(task, name, peers[name], options, rows[name].answers))
            told = {key: shown(value) for key, value in rows[name].rounds[-1].items() if "per_s" in key}
            print(f"round {number + 1}, {name}: {told}", flush=True)
    manifest = find_artifact(task.artifacts[AFTER], task.model, "cpu").manifest
    (head, verdict), ours = task.verdict, rows[AFTER].answers
    verdicts = [verdict(row.answers, ours) if row.answers else "" for row in rows.values()]
    parts = [
        f"## {task.title}",
        filled(f"{task.about} Corelane serves {manifest.dtype} ({manifest.format})."),
        table(list(rows.values()), head, verdicts),
        *(filled(cpu_line(OURS[name].strip("*"), medians(rows[name].rounds), task.item)) for name in task.artifacts),
    ]
    if absent := [peer.title for peer in wanted if peer.name not in peers]:
        parts.append(filled(f"Not measured, as it could not be installed: {', '.join(absent)}."))
    return "\n\n".join(parts)


def head_of(options: argparse.Namespace) -> str:
    """Return the beginning of the page: of what it speaks. The page itself is no change of the commit."""

    def git(*argv: str) -> str:
        return subprocess.run(["git", *argv], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    is_changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/performance.md")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    of_what = f"""`make bench-page` wrote this page on {time.strftime("%Y-%m-%d")} in one run, on commit
    {git("rev-parse", "--short=12", "HEAD")}{" with changes" if is_changed else ""}, {about_machine()}, {memory_gb:.0f}
    GB, Python {platform.python_version()}, {", ".join(f"{name} {version(name)}" for name in PACKAGES)}."""
    how = f"""Figures are items a second and the 95th percentile of latency: medians of {options.rounds}
    round{"s" * (options.rounds > 1)} of {options.seconds:g} s for each number of callers. Services run one after the
    other, in an order that rotates, with the same network and client, a process a core, and one thread in each. Client
    and service share the CPUs. Compare the rows: another machine has other figures.
    [Peers](../benchmarks/peers/README.md) says how each is served."""
    return "\n\n".join(("# Performance", filled(of_what), filled(how)))


def filled(text: str) -> str:
    """Return a paragraph as the docs wrap it."""
    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)


def main() -> int:
    """Measure all and print the page, or write it."""
    quick = is_quick()
    parser = parser_of(__doc__, rounds=3, takes_questions=True)
    parser.add_argument("--seconds", type=float, default=0.2 if quick else 6.0, help="of each number of callers")
    parser.add_argument("--limit", type=int, help="only the first questions of the file")
    parser.add_argument("--bulk", type=int, default=12 if quick else 1500, help="texts to embed")
    parser.add_argument("--tasks", default=",".join(TASKS), help="questions, embeddings")
    parser.add_argument("--only", help="names of peers, with commas between them")
    parser.add_argument("--out", type=Path, help="the page to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        options.folder = Path(folder)
        tasks = [TASKS[name](options, options.folder / name) for name in options.tasks.split(",")]
        page = "\n\n".join([head_of(options), *(section(task, options) for task in tasks)])
    print(f"\n{page}", flush=True)
    if options.out:
        options.out.write_text(page + "\n")
    return 0


if __name__ == "__main__":
    # A run that is ended stops what it started, as one that Ctrl-C ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
