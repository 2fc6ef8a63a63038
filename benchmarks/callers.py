"""Callers who each ask for their next item once the last is answered: what they felt, and what they were answered."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchmarks.harness import Connection, Figures, Serving, at_once, cpu_us_since, is_quick, percentile

#: Callers who each ask for their next item once the last is answered.
CALLERS = (1, 16, 64)

#: How long load runs before each measured part, in seconds; the processes are warm by then.
WARM_UP_S = 1.0

#: A function that asks for an item, or several, and returns what was answered.
Ask = Callable[[Any], Any]


@dataclass
class Load:
    """What callers felt: the seconds of each answer, what was asked and answered, and why items failed.

    ``done`` counts all that were answered, those of the warm-up and after the end too: their CPU time was spent.
    """

    seconds: float = 0.0
    taken: list[float] = field(default_factory=list)
    answered: list[tuple[Any, Any]] = field(default_factory=list)
    done: int = 0
    failures: list[str] = field(default_factory=list)

    def figures(self) -> Figures:
        """Return speed and latency, and how many failed if any did; print why the first of these failed."""
        taken, failed = self.taken or [0.0], {"failed": float(len(self.failures))} if self.failures else {}
        if failed:
            print(self.failures[0], flush=True)
        return failed | {
            "per_s": len(self.taken) / self.seconds,
            "p50_ms": 1000 * percentile(taken, 50),
            "p95_ms": 1000 * percentile(taken, 95),
        }


def closed_loop(
    make_ask: Callable[[], Ask],
    items: Sequence[Any],
    callers: int,
    *,
    seconds: float | None = None,
    requests: int | None = None,
    warm_up_s: float = 0.0,
) -> Load:
    """Ask for ``seconds``, or for ``requests`` items in all, after a warm-up that does not count.

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
            item, sent, answer, failure = items[number % len(items)], time.perf_counter(), None, ""
            try:
                answer = ask(item)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            ended = time.perf_counter()
            with lock:
                if failure:
                    found.failures.append(failure)
                    continue
                found.done += 1
                if began <= ended <= until:
                    found.taken.append(ended - sent)
                    found.answered.append((item, answer))

    at_once(call, callers)
    found.seconds = seconds if seconds is not None else time.perf_counter() - began
    return found


def lone(
    make_ask: Callable[[], Ask], items: Sequence[Any], counts: Sequence[int], seconds: float, service: Serving | None
) -> Figures:
    """Measure lone items by each number of callers, or by the first in a quick run; of our service its CPU too."""
    figures = Figures()
    for callers in counts[:1] if is_quick() else counts:
        name, spent = f"callers_{callers}_", service.cpu_s() if service else {}
        load = closed_loop(make_ask, items, callers, seconds=seconds, warm_up_s=0.0 if is_quick() else WARM_UP_S)
        figures |= {name + figure: value for figure, value in load.figures().items()}
        figures |= cpu_us_since(spent, service, load.done, name) if service else {}
    return figures


def one_job(service: Serving, body: dict[str, Any]) -> tuple[Figures, list[dict[str, Any]]]:
    """Return the items a second of one job, to the last of its results, its CPU by role, and its results."""
    connection, spent, began = Connection(service.url), service.cpu_s(), time.perf_counter()
    job = connection.call("POST", "/v1/jobs", orjson.dumps(body))["id"]
    connection.finish(job)
    results = list(connection.results(job))
    if len(results) != len(body["items"]):
        raise RuntimeError(f"{len(results)} results of {len(body['items'])} items")
    figures = {"bulk_per_s": len(results) / (time.perf_counter() - began)}
    return figures | cpu_us_since(spent, service, len(results), "bulk_"), results
