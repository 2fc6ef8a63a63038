"""Callers who each ask their next question once the last is answered: what they felt, and which answers were right."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Figures, at_once, percentile
from benchmarks.questions import Question, is_exact

#: A function that asks a question and returns the answer's text.
Ask = Callable[[Question], str]


@dataclass
class Load:
    """What callers felt: the seconds of each answer, how many of these were right, and which questions failed.

    ``done`` counts all that were answered, those of the warm-up and after the end too: their CPU time was spent.
    """

    seconds: float = 0.0
    taken: list[float] = field(default_factory=list)
    right: int = 0
    done: int = 0
    failures: list[str] = field(default_factory=list)

    def figures(self) -> Figures:
        """Return speed and latency."""
        taken = self.taken or [0.0]
        return {
            "per_s": len(self.taken) / self.seconds,
            "p50_ms": 1000 * percentile(taken, 50),
            "p95_ms": 1000 * percentile(taken, 95),
        }


def closed_loop(
    make_ask: Callable[[], Ask],
    questions: Sequence[Question],
    callers: int,
    *,
    seconds: float | None = None,
    requests: int | None = None,
    warm_up_s: float = 0.0,
) -> Load:
    """Ask for ``seconds``, or ``requests`` questions in all, after a warm-up that does not count.

    Each caller has what ``make_ask`` returns for itself: a connection of its own.
    """
    found, lock, numbers = Load(), threading.Lock(), itertools.count()
    began = time.perf_counter() + warm_up_s
    until = began + seconds if seconds is not None else float("inf")

    def call() -> None:
        ask = make_ask()
        while time.perf_counter() < until:
            with lock:
                number = next(numbers)
            if requests is not None and number >= requests:
                return
            question, sent = questions[number % len(questions)], time.perf_counter()
            try:
                answer, failure = ask(question), ""
            except Exception as error:
                answer, failure = "", f"{type(error).__name__}: {error}"
            ended = time.perf_counter()
            with lock:
                if failure:
                    found.failures.append(failure)
                    continue
                found.done += 1
                if began <= ended <= until:
                    found.taken.append(ended - sent)
                    found.right += is_exact(question, answer)

    at_once(call, callers)
    found.seconds = seconds if seconds is not None else time.perf_counter() - began
    return found
