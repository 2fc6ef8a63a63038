"""A made-up service: cores that take a fixed time for each request, in the order of arrival. Its runs take no time."""

import heapq
import random
from dataclasses import dataclass, field

from corelane.plugins.lab.figures import Measurement, point_figures, summarise
from corelane.plugins.lab.schema import Generator, Load, LoadPoint, Outcome, Request, ResultCheck
from corelane.plugins.lab.stats import spread

BEGAN_AT = "2026-11-22T12:00:00.000Z"


@dataclass
class Queue:
    """A service of some cores; ``measure`` is a run of it. A generator that is late makes its runs invalid."""

    cores: int = 2
    service_s: float = 0.02
    lateness_s: float = 0.0
    refuses_beyond: int | None = None
    loads: list[Load] = field(default_factory=list)

    def measure(self, name: str, load: Load) -> LoadPoint:
        self.loads.append(load)
        run = summarise(self.run(load))
        return LoadPoint(name=name, load=load, runs=[run], figures=point_figures([run]))

    def run(self, load: Load, results: ResultCheck | None = None) -> Measurement:
        """Return what a generator would measure under a load."""
        duration_s = load.duration_s or 2.0
        if load.kind == "closed":
            requests = self._closed(load.concurrency or 1, duration_s)
        else:
            requests = self._open(load.rate_per_s or 1.0, duration_s, load.seed)
        generator = Generator(
            processes=1,
            requested_per_s=load.rate_per_s,
            achieved_per_s=load.rate_per_s or len(requests) / duration_s,
            lateness=None if load.kind == "closed" else spread([self.lateness_s]),
            cpu_s=0.1,
            cpu_share=0.1,
        )
        return Measurement(requests, generator, (0.0, duration_s), BEGAN_AT, results)

    def _open(self, rate_per_s: float, duration_s: float, seed: int) -> list[Request]:
        rng, at, free = random.Random(seed), 0.0, [0.0] * self.cores
        found: list[Request] = []
        while (at := at + rng.expovariate(1.0) / rate_per_s) < duration_s:
            is_refused = self.refuses_beyond is not None and (free[0] - at) / self.service_s > self.refuses_beyond
            if is_refused:
                found.append(request(len(found), at, at + 0.001, "refused"))
                continue
            end = max(at, heapq.heappop(free)) + self.service_s * rng.uniform(0.8, 1.2)
            heapq.heappush(free, end)
            found.append(request(len(found), at, end))
        return found

    def _closed(self, concurrency: int, duration_s: float) -> list[Request]:
        callers, free = [0.0] * concurrency, [0.0] * self.cores
        found: list[Request] = []
        while (at := heapq.heappop(callers)) < duration_s:
            end = max(at, heapq.heappop(free)) + self.service_s
            heapq.heappush(free, end)
            heapq.heappush(callers, end)
            found.append(request(len(found), at, end))
        return found


def request(number: int, at: float, end: float, outcome: Outcome = "ok") -> Request:
    return Request.model_construct(
        number=number,
        process=0,
        phase="measured",
        outcome=outcome,
        intended_s=at,
        sent_s=at,
        ended_s=end,
        items=1,
        tokens=100,
        detail=None,
        first_s=None,
        lost=0,
        twice=0,
        error=None if outcome == "ok" else "overloaded",
    )
