"""Short questions beside a document: how long they take while nothing else runs, and while a core reads 100 pages.

    python benchmarks/mixed_load.py [FILE.json.gz] [--limit N]

Questions of a SQuAD file come one by one at a steady rate, a third of what the service can do; in every second phase a
document of 50,000 words, with what is asked for in its last sentence, is being read all the time. Latencies count from
the moment a question was due, so that one that had to wait for its turn is not flattered. With a core full of document,
CPU that other programs take makes questions wait: compare figures only where ``foreign_cpus`` is near 0.
"""

import json
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.processes import TICKS_PER_S, cpu_seconds, descendants
from benchmarks.questions import read_arguments
from corelane.bulk import answer_all
from corelane.cli.local import running_service
from corelane.cli.squad import Question
from corelane.client import Client
from corelane.errors import CorelaneError
from corelane.jobs import Item, Options

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)

#: Phases without and with a document, by turns, and the questions of each.
PHASES, SAMPLES = ("alone", "document", "alone", "document"), 700

#: Questions a second, as a share of what the service does in bulk.
LOAD = 0.35

#: Threads that ask, more than questions are ever under way.
ASKERS = 16

#: A hundred pages.
DOCUMENT_WORDS = 50_000

QUESTION, ANSWER = "Who has the key to the attic?", "Rosalind Vane"
LAST_SENTENCE = f" The key to the attic is with {ANSWER}."

#: Longest time for a document to begin to be read, in seconds.
BEGIN_S = 60


def capacity(client: Client, questions: Sequence[Question]) -> float:
    """Questions per second in bulk."""
    items = [Item(question=question.question, context=question.context) for question in questions[:400]]
    list(answer_all(client, items[:64], options=OPTIONS))
    began = time.perf_counter()
    count = sum(1 for _ in answer_all(client, items, options=OPTIONS))
    return count / (time.perf_counter() - began)


def ask_steadily(client: Client, questions: Sequence[Question], rate_per_s: float) -> list[float]:
    """The latency of each question, in seconds from when it was due."""
    began = time.perf_counter() + 0.1

    def ask(number: int) -> float:
        due = began + number / rate_per_s
        time.sleep(max(0.0, due - time.perf_counter()))
        client.ask(questions[number].question, questions[number].context, no_answer=False)
        return time.perf_counter() - due

    with ThreadPoolExecutor(ASKERS) as askers:
        return list(askers.map(ask, range(len(questions))))


def make_document(questions: Sequence[Question], number: int) -> str:
    """Passages in an order of their own, and the sentence that is asked for."""
    passages = list(dict.fromkeys(question.context for question in questions))
    order = random.Random(number)
    parts, words = [f"Volume {number}."], 0
    while words < DOCUMENT_WORDS:
        parts.append(order.choice(passages))
        words += len(parts[-1].split())
    return "\n\n".join(parts) + LAST_SENTENCE


class Readers:
    """Has a document read all the time, the next when one is done."""

    def __init__(self, client: Client, questions: Sequence[Question]) -> None:
        self._client = client
        self._questions = questions
        self._stop = threading.Event()
        self.read = 0
        self.failures: list[str] = []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Documents are under way for the length of the block."""
        self._stop.clear()
        begun = threading.Event()
        reader = threading.Thread(target=self._read_on, args=(begun,))
        reader.start()
        if not begun.wait(BEGIN_S):
            raise SystemExit("no document began to be read")
        try:
            yield
        finally:
            self._stop.set()
            reader.join()

    def _read_on(self, begun: threading.Event) -> None:
        while not self._stop.is_set():
            item = Item(question=QUESTION, context=make_document(self._questions, self.read + 1))
            job = self._client.submit([item], options=OPTIONS)
            while not job.status.is_final:
                job = self._client.get(job.id, wait_s=0.5)
                if job.status == "running":
                    begun.set()
            [result] = self._client.iter_results(job.id)
            self.read += 1
            if result.answer is None or result.answer.text != ANSWER:
                self.failures.append(f"document {self.read}: {result.answer}")


def percentile_ms(latencies: Sequence[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return round(1000 * statistics.quantiles(latencies, n=100, method="inclusive")[percent - 1], 1)


def foreign_cpu_s() -> float:
    """CPU time of all processes so far that are neither this one nor its service."""
    user, nice, system, _, _, hard, soft, *_ = Path("/proc/stat").read_text().split()[1:]
    ours = time.process_time() + sum(cpu_seconds(descendants(os.getpid())).values())
    return sum(map(int, (user, nice, system, hard, soft))) / TICKS_PER_S - ours


def measure(questions: list[Question]) -> dict[str, object]:
    """All phases, on one service."""
    found: dict[str, list[list[float]]] = {"alone": [], "document": []}
    foreign: dict[str, list[float]] = {"alone": [], "document": []}
    with running_service(DATA) as url, Client(url) as client, Client(url) as other:
        full = capacity(client, questions)
        readers = Readers(other, questions)
        order = random.Random(1)
        ask_steadily(client, order.choices(questions, k=50), LOAD * full)
        for phase in PHASES:
            chosen = order.choices(questions, k=SAMPLES)
            with readers.reading() if phase == "document" else nullcontext():
                used, began = foreign_cpu_s(), time.perf_counter()
                found[phase].append(ask_steadily(client, chosen, LOAD * full))
                foreign[phase].append((foreign_cpu_s() - used) / (time.perf_counter() - began))
    alone, beside = ([each for part in found[phase] for each in part] for phase in ("alone", "document"))
    return {
        "capacity_per_s": round(full, 1),
        "rate_per_s": round(LOAD * full, 1),
        "samples": len(alone),
        "short_p50_ms": percentile_ms(alone, 50),
        "short_p99_ms": percentile_ms(alone, 99),
        "short_p50_ms_with_document": percentile_ms(beside, 50),
        "short_p99_ms_with_document": percentile_ms(beside, 99),
        "ratio": round(percentile_ms(beside, 99) / percentile_ms(alone, 99), 2),
        "phases_p99_ms": {phase: [percentile_ms(part, 99) for part in parts] for phase, parts in found.items()},
        "foreign_cpus": {phase: [round(part, 2) for part in parts] for phase, parts in foreign.items()},
        "document_words": DOCUMENT_WORDS,
        "documents_read": readers.read,
        "documents_wrong": readers.failures,
    }


def main() -> int:
    """Measure and keep the figures."""
    try:
        figures = measure(read_arguments(__doc__))
    except CorelaneError as error:
        raise SystemExit(f"{error.code}: {error.detail}") from None
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "mixed_load.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
