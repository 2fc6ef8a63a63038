"""Short questions beside a document: how long they take while nothing else runs, and while a core reads 100 pages.

    python benchmarks/mixed_load.py [FILE.json.gz] [--limit N] [--quick]

Questions of a SQuAD file come one by one at a steady rate, a third of what the service can do, the same ones in both
phases of a pair; in every second phase a document of 50,000 words, with what is asked for in its last sentence, is
submitted and read meanwhile. Latencies count from the moment a question was due, so that one that had to wait for its
turn is not flattered. With a core full of document, CPU that other programs take makes questions wait: pairs of phases
count in which they took next to none, if there were any such.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.processes import TICKS_PER_S, cpu_seconds, descendants
from benchmarks.questions import read_arguments
from benchmarks.runs import is_quick, keep, service
from corelane.client import Client
from corelane.client.bulk import answer_all
from corelane.domain.jobs import Item, Options
from corelane.errors import CorelaneError
from corelane.quality.squad import Question

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)

#: Questions of a phase; phases come in pairs, without a document and with one.
SAMPLES = 150

#: Pairs that are wanted in which nobody else took more CPU than this (in CPUs), and pairs after which that is given up.
QUIET_PAIRS, QUIET_CPUS, MOST_PAIRS = 4, 0.2, 16

#: Questions a second, as a share of what the service does in bulk.
LOAD = 0.35

#: Threads that ask, more than questions are ever under way.
ASKERS = 16

#: A hundred pages.
DOCUMENT_WORDS = 50_000

#: Questions of a phase, pairs at most, questions before them and words of a document in a quick run.
QUICKLY = (6, 1, 3, 500)

QUESTION, ANSWER = "Who has the key to the attic?", "Rosalind Vane"
LAST_SENTENCE = f" The key to the attic is with {ANSWER}."


def capacity(client: Client, questions: Sequence[Question]) -> float:
    """Questions per second in bulk."""
    items = [Item(question=question.question, context=question.context) for question in questions[:400]]
    list(answer_all(client, items[:64], options=OPTIONS))
    began = time.perf_counter()
    count = sum(1 for _ in answer_all(client, items, options=OPTIONS))
    return count / (time.perf_counter() - began)


def ask_steadily(client: Client, questions: Sequence[Question], rate_per_s: float) -> list[float]:
    """Return the latency of each question, in seconds from when it was due."""
    began = time.perf_counter() + 0.1

    def ask(number: int) -> float:
        due = began + number / rate_per_s
        time.sleep(max(0.0, due - time.perf_counter()))
        client.ask(questions[number].question, questions[number].context, no_answer=False)
        return time.perf_counter() - due

    with ThreadPoolExecutor(ASKERS) as askers:
        return list(askers.map(ask, range(len(questions))))


def make_document(questions: Sequence[Question], number: int, most_words: int = DOCUMENT_WORDS) -> str:
    """Passages in an order of their own, and the sentence that is asked for."""
    passages = list(dict.fromkeys(question.context for question in questions))
    order = random.Random(number)
    parts, words = [f"Volume {number}."], 0
    while words < most_words:
        parts.append(order.choice(passages))
        words += len(parts[-1].split())
    return "\n\n".join(parts) + LAST_SENTENCE


class Reader:
    """Has documents read, the next when one is done."""

    def __init__(self, client: Client, questions: Sequence[Question], words: int) -> None:
        self._client = client
        self._words = words
        self._questions = questions
        self.read = 0
        self.wrong: list[str] = []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep a document under way from the beginning of the block to its end at least."""
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self._read_until, stop)
            try:
                yield
            finally:
                stop.set()
            done.result()

    def _read_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.read += 1
            result = self._client.ask(QUESTION, make_document(self._questions, self.read, self._words), no_answer=False)
            if result.answer is None or result.answer.text != ANSWER:
                self.wrong.append(f"document {self.read}: {result.answer}")


def percentile_ms(latencies: Sequence[float], percent: int) -> float:
    """Return a percentile, in milliseconds."""
    return round(1000 * statistics.quantiles(latencies, n=100, method="inclusive")[percent - 1], 1)


def foreign_cpu_s() -> float:
    """CPU time of all processes so far that are neither this one nor its service."""
    user, nice, system, _, _, hard, soft, *_ = Path("/proc/stat").read_text().split()[1:]
    ours = time.process_time() + sum(cpu_seconds(descendants(os.getpid())).values())
    return sum(map(int, (user, nice, system, hard, soft))) / TICKS_PER_S - ours


@dataclass(frozen=True, slots=True)
class Pair:
    """Latencies without and with a document, and the CPUs that others took meanwhile."""

    alone: list[float]
    beside: list[float]
    foreign: tuple[float, float]

    @property
    def is_quiet(self) -> bool:
        """Whether it says something about the service."""
        return max(self.foreign) <= QUIET_CPUS


def measure_pairs(client: Client, reader: Reader, questions: Sequence[Question], rate_per_s: float) -> list[Pair]:
    """Pairs until enough were quiet; the quiet ones, or all if there were none."""
    order = random.Random(1)
    pairs: list[Pair] = []
    samples, most_pairs, before, _ = plan()

    def phase(asked: Sequence[Question]) -> tuple[list[float], float]:
        used, began = foreign_cpu_s(), time.perf_counter()
        latencies = ask_steadily(client, asked, rate_per_s)
        return latencies, (foreign_cpu_s() - used) / (time.perf_counter() - began)

    ask_steadily(client, order.choices(questions, k=before), rate_per_s)
    while len(pairs) < most_pairs and sum(pair.is_quiet for pair in pairs) < QUIET_PAIRS:
        asked = order.choices(questions, k=samples)
        alone, foreign_alone = phase(asked)
        with reader.reading():
            beside, foreign_beside = phase(asked)
        pairs.append(Pair(alone, beside, (foreign_alone, foreign_beside)))
    return [pair for pair in pairs if pair.is_quiet] or pairs


def plan() -> tuple[int, int, int, int]:
    """Questions of a phase, pairs at most, questions before them, and words of a document."""
    return QUICKLY if is_quick() else (SAMPLES, MOST_PAIRS, 50, DOCUMENT_WORDS)


def measure(questions: list[Question]) -> dict[str, object]:
    """All of it, on one service."""
    words = plan()[-1]
    with service(DATA) as running, Client(running.url) as client:
        full = capacity(client, questions)
        reader = Reader(client, questions, words)
        pairs = measure_pairs(client, reader, questions, LOAD * full)
    alone = [latency for pair in pairs for latency in pair.alone]
    beside = [latency for pair in pairs for latency in pair.beside]
    return {
        "capacity_per_s": round(full, 1),
        "rate_per_s": round(LOAD * full, 1),
        "samples": len(alone),
        "short_p50_ms": percentile_ms(alone, 50),
        "short_p99_ms": percentile_ms(alone, 99),
        "short_p50_ms_with_document": percentile_ms(beside, 50),
        "short_p99_ms_with_document": percentile_ms(beside, 99),
        "ratio": round(percentile_ms(beside, 99) / percentile_ms(alone, 99), 2),
        "pairs_p99_ms": [(percentile_ms(pair.alone, 99), percentile_ms(pair.beside, 99)) for pair in pairs],
        "pairs_foreign_cpus": [tuple(round(part, 2) for part in pair.foreign) for pair in pairs],
        "pairs_are_quiet": all(pair.is_quiet for pair in pairs),
        "document_words": words,
        "documents_read": reader.read,
        "documents_wrong": reader.wrong,
    }


def main() -> int:
    """Measure and keep the figures."""
    try:
        figures = measure(read_arguments(__doc__))
    except CorelaneError as error:
        raise SystemExit(f"{error.code}: {error.detail}") from None
    keep("mixed_load", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
