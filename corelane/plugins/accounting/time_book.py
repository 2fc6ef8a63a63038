"""The time that a core spends on each job that it holds: measured in the drain, sent with the job's results.

Times are measured by the clock. Core seconds, which are charged, are CPU time if the CPU does the work.

Each piece of work counts for the jobs that it is done for; the other jobs wait. While a batch runs on a device, other
work counts only for jobs outside that batch. Time that is not observed, such as the drain's own steps between two
batches, is the difference between the time a job was held and its parts.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from corelane.domain.prices import NOTHING
from corelane.store.dispatch import ExchangeRequest
from workers.core.observer import (
    Claimed,
    CoreBatch,
    CoreObserver,
    HandBack,
    Heartbeat,
    TokenizedSlices,
    Trip,
)

#: Microseconds in a second.
US = 1_000_000

#: Places among the sums of ``HeldJob``: what a core does for a job, the job's share of the core seconds, and the
#: windows and tokens that the model read.
TOKENIZE, COMPUTE, MERGE, COMMIT, CORE, WINDOWS, TOKENS = range(7)


@dataclass(slots=True)
class HeldJob:
    """A job that the core holds: since when, the core's working seconds until then, and the time spent on it.

    ``sums`` are seconds by stage, then core seconds by the job's share, then windows and tokens. ``reported`` holds the
    sums at the last report.
    """

    since: float
    worked: float
    sums: list[float] = field(default_factory=lambda: [0.0] * 7)
    reported: tuple[float, float, list[float]] = (0.0, 0.0, [0.0] * 7)


class TimeBook(CoreObserver):
    """The times of the jobs that a core holds, and the totals since its process began."""

    def __init__(self, price: str = NOTHING, clock: Callable[[], float] = time.perf_counter) -> None:
        """``price`` is the price of an hour of the core, as it is stored."""
        self._price = price
        self._clock = clock
        self._process = uuid4().hex
        #: Total core seconds.
        self.core_s = 0.0
        #: Windows, tokens and core seconds of discarded work: it was handed back, or its lease was lost.
        self._lost = [0.0] * 3
        self._held: dict[str, HeldJob] = {}
        #: Seconds in which the core worked, without the batches in progress; and the batch that is running.
        self._worked = 0.0
        self._batch: CoreBatch | None = None
        #: Redis' time in seconds and this clock's, at the same moment: the last reply to a claim.
        self._redis: tuple[float, float] | None = None

    def contributes(self, request: ExchangeRequest) -> None:
        """Report the time spent on the jobs with outcomes, and the discarded work."""
        jobs = dict.fromkeys(outcome.ref.job for outcomes in request.commits.values() for outcome in outcomes)
        request.sent_us = self.redis_us()
        request.spent = self.report(jobs)
        request.lost = self.report_lost() if jobs else ()

    def committed(self, trip: Trip) -> None:
        """Note that the report was stored. Jobs without work in progress are no longer held."""
        request, reply = trip.request, trip.reply
        self._settle_lost(request.lost)
        if reply.redis_us is not None:
            self._redis = (reply.redis_us / US, trip.at)
        if request.spent:
            self._settle(request.spent, {*request.jobs, *trip.claimed})
        self._count(COMMIT, request.spent, trip.seconds)

    def claimed(self, claimed: Claimed) -> None:
        """Hold the jobs of a claim."""
        for job in claimed.jobs:
            if job not in self._held:
                self._held[job] = HeldJob(claimed.at, self._worked_at(claimed.at))
        self._count(COMMIT, claimed.jobs, claimed.seconds)

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Count the time of tokenizing."""
        self._count(TOKENIZE, tokenized.tokens, tokenized.seconds)
        self._share(tokenized.tokens, tokenized.core_s)

    def batch_started(self, batch: CoreBatch) -> None:
        """Note that a batch runs. Meanwhile, its jobs are not charged for other work."""
        self._batch = batch

    def batch_finished(self, batch: CoreBatch) -> None:
        """Count the time of a batch for the jobs in it."""
        self._batch = None
        self._worked += batch.seconds
        self._add(TOKENIZE, batch.readers, batch.read_s)
        self._add(COMPUTE, batch.tokens, batch.compute_s)
        self._add(MERGE, batch.tokens, batch.merge_s)
        self._share(batch.readers, batch.read_core_s)
        self._share(batch.tokens, batch.core_s - batch.read_core_s)
        for job, count in batch.windows.items():
            if (held := self._held.get(job)) is not None:
                held.sums[WINDOWS] += count
                held.sums[TOKENS] += batch.tokens[job]
            else:
                self._lost[0] += count
                self._lost[1] += batch.tokens[job]

    def dropped(self, jobs: Collection[str]) -> None:
        """Forget jobs that were canceled, handed back, or lost with their lease. The time spent on them is lost."""
        for job in jobs:
            if (held := self._held.pop(job, None)) is not None:
                self._lose(held.sums)

    def waited(self, seconds: float) -> None:
        """Count a pause as waiting."""
        self._count(COMMIT, (), seconds)

    def hands_back(self, request: HandBack) -> None:
        """Report the discarded work."""
        request.lost = self.report_lost()
        self._settle_lost(request.lost)

    def beats(self, heartbeat: Heartbeat) -> None:
        """Report the totals of the process."""
        heartbeat.fields["core_s"] = round(self.core_s, 6)
        heartbeat.worked = (self._process, self._price, int(US * self.core_s))

    def report(self, jobs: Iterable[str]) -> dict[str, list[int]]:
        """Return the microseconds of jobs since the last stored report, as ``Spent`` has them, windows and tokens."""
        now = self._clock()
        worked = self._worked_at(now)
        report = {}
        for job in jobs:
            if (held := self._held.get(job)) is None:
                continue
            held.reported = (now, worked, list(held.sums))
            waited = max(0.0, worked - held.worked - sum(held.sums[:CORE]))
            spent = [int(US * seconds) for seconds in (now - held.since, waited, *held.sums[:WINDOWS])]
            report[job] = [*spent, int(held.sums[WINDOWS]), int(held.sums[TOKENS])]
        return report

    def report_lost(self) -> list[int]:
        """Return the discarded work: windows, tokens and core microseconds; empty if there is none."""
        windows, tokens, core_s = self._lost
        return [int(windows), int(tokens), int(US * core_s)] if core_s * US >= 1 or windows else []

    def redis_us(self) -> int | None:
        """Return the current time of Redis, or None before the first claim."""
        if self._redis is None:
            return None
        redis_s, at = self._redis
        return int(US * (redis_s + self._clock() - at))

    def _settle(self, jobs: Iterable[str], still_held: Collection[str]) -> None:
        """Note that the last report of these jobs was stored; forget the jobs that are no longer held."""
        for job in jobs:
            held = self._held[job]
            since, worked, reported = held.reported
            left = [after - before for after, before in zip(held.sums, reported, strict=True)]
            if job in still_held:
                held.since, held.worked, held.sums = since, worked, left
            else:
                self._lose(left)
                del self._held[job]

    def _settle_lost(self, lost: Iterable[int]) -> None:
        """Note that a report of discarded work was stored."""
        for place, reported in enumerate(lost):
            self._lost[place] -= reported / US if place == 2 else reported

    def _lose(self, sums: list[float]) -> None:
        for place, stage in enumerate((WINDOWS, TOKENS, CORE)):
            self._lost[place] += max(0.0, sums[stage])

    def _count(self, stage: int, jobs: Iterable[str], seconds: float) -> None:
        """Add time to jobs. While a batch runs, skip its jobs: the time of the batch covers them."""
        if self._batch is None:
            self._worked += seconds
            self._add(stage, jobs, seconds)
        else:
            self._add(stage, [job for job in jobs if job not in self._batch.tokens], seconds)

    def _add(self, stage: int, jobs: Iterable[str], seconds: float) -> None:
        held = self._held
        for job in jobs:
            if job in held:
                held[job].sums[stage] += seconds

    def _share(self, tokens: Mapping[str, int], seconds: float) -> None:
        """Divide core seconds among jobs by their tokens."""
        if not tokens:
            return
        self.core_s += seconds
        a_token = seconds / max(1, sum(tokens.values()))
        for job, its_tokens in tokens.items():
            if (held := self._held.get(job)) is not None:
                held.sums[CORE] += its_tokens * a_token
            else:
                self._lost[2] += its_tokens * a_token

    def _worked_at(self, now: float) -> float:
        return self._worked + (now - self._batch.began if self._batch is not None else 0.0)
