"""What a core spends on each job it holds: measured in the drain, sent with the job's results; and what items cost.

Times pass by the clock; core seconds, which are charged and forecast, by CPU time where the CPU does the work.

Every moment in which the core does something is covered. It counts for the jobs it is done for; the others wait
meanwhile. While a batch runs on a device, all else that is done counts for jobs outside that batch only. What nothing
covers, as the drain's own steps between two batches, is the difference between the time a job was held and its parts.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Microseconds in a second.
US = 1_000_000


#: What a core does for a job, its share of the core seconds, and what the model read of it: places among the sums of
#: ``HeldJob``.
TOKENIZE, COMPUTE, MERGE, COMMIT, CORE, WINDOWS, TOKENS = range(7)


#: The place of the core time in a report.
SPENT_CORE = 6

#: Lone questions are a measure until so many costs wait for the next heartbeat: a core answers more than it needs.
ENOUGH_COSTS = 64

#: What items cost: their version and class, how many they are, their estimated tokens, tokens, windows, core
#: microseconds.
ItemCosts = tuple[str, str, int, int, int, int, int]

#: Where the clock and the CPU clock stood.
Mark = tuple[float, float]


@dataclass(slots=True)
class HeldJob:
    """A job that the core holds: since when, the time covered until then, and what was spent on it since.

    ``sums`` are seconds by stage, then core seconds by the job's share, then windows and tokens. ``reported`` is what
    the last report covered.
    """

    since: float
    covered: float
    sums: list[float] = field(default_factory=lambda: [0.0] * 7)
    reported: tuple[float, float, list[float]] = (0.0, 0.0, [])


@dataclass(slots=True)
class CoreAccount:
    """What a core spent since its process began: core seconds in all, and what of them no job is charged yet.

    ``lost`` are windows, tokens and core seconds of work that was thrown away: it was handed back, or its lease was
    lost. They are sent with a later commit.
    """

    core_s: float = 0.0
    lost: list[float] = field(default_factory=lambda: [0.0] * 3)

    def lose(self, sums: Sequence[float], reported: Sequence[float] = ()) -> None:
        """Add what was spent on a job that is held no more, but for what was reported."""
        for place, stage in enumerate((WINDOWS, TOKENS, CORE)):
            self.lost[place] += max(0.0, sums[stage] - (reported[stage] if reported else 0.0))

    def report_lost(self) -> list[int]:
        """Return the work that was thrown away: windows, tokens and core microseconds; empty if there is none."""
        windows, tokens, core_s = self.lost
        return [int(windows), int(tokens), int(US * core_s)] if core_s * US >= 1 or windows else []

    def settle_lost(self, reported: Sequence[int]) -> None:
        """Note that a report of it was kept."""
        if reported:
            windows, tokens, core_us = reported
            self.lost = [self.lost[0] - windows, self.lost[1] - tokens, self.lost[2] - core_us / US]


class TimeBook:
    """The times of the jobs that a core holds. Not thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        account: CoreAccount | None = None,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.clock = clock
        self.account = account or CoreAccount()
        self._cpu_clock = cpu_clock
        self._held: dict[str, HeldJob] = {}
        self._covered = 0.0
        self._depth = 0
        self._since = 0.0
        #: Redis' time in seconds and this clock's, at the same moment: the last reply to a claim.
        self._redis: tuple[float, float] | None = None

    def enter(self) -> float:
        """Begin a time that is covered; such times may be nested. Return the present time."""
        now = self.clock()
        if not self._depth:
            self._since = now
        self._depth += 1
        return now

    def leave(self) -> float:
        """End it; return the present time."""
        now = self.clock()
        self._depth -= 1
        if not self._depth:
            self._covered += now - self._since
        return now

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Cover a time that counts for no job: those held wait."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def hold(self, jobs: Iterable[str], redis_us: int | None) -> float:
        """Note that a claim came, at this time of Redis, with slices of these jobs; return the present time."""
        now = self.clock()
        if redis_us is not None:
            self._redis = (redis_us / US, now)
        for job in jobs:
            if job not in self._held:
                self._held[job] = HeldJob(now, self._covered_at(now))
        return now

    def add(self, stage: int, jobs: Iterable[str], seconds: float) -> None:
        """Count a time for jobs; those that are not held any more are left out."""
        held = self._held
        for job in jobs:
            if job in held:
                held[job].sums[stage] += seconds

    def mark(self) -> Mark:
        """Return where both clocks stand."""
        return self.clock(), self._cpu_clock()

    def worked(self, since: Mark, *, on_cpu: bool) -> float:
        """Return the core seconds since a mark. Work on the CPU counts by CPU time, and never more than passed: a job
        does not pay for what other processes of the machine do meanwhile.
        """
        passed_s, cpu_s = (now - then for now, then in zip(self.mark(), since, strict=True))
        return min(passed_s, cpu_s) if on_cpu else passed_s

    def share(self, tokens: Mapping[str, int], seconds: float) -> None:
        """Share core seconds among jobs by their tokens."""
        if not tokens:
            return
        self.account.core_s += seconds
        a_token = seconds / max(1, sum(tokens.values()))
        for job, its_tokens in tokens.items():
            if (held := self._held.get(job)) is not None:
                held.sums[CORE] += its_tokens * a_token
            else:
                self.account.lost[2] += its_tokens * a_token

    def read(self, windows: Mapping[str, int], tokens: Mapping[str, int]) -> None:
        """Count the windows and tokens of jobs in a batch."""
        for job, count in windows.items():
            if (held := self._held.get(job)) is not None:
                held.sums[WINDOWS] += count
                held.sums[TOKENS] += tokens[job]

    def report(self, jobs: Iterable[str]) -> dict[str, list[int]]:
        """Return what was spent on jobs since the last report that was settled: microseconds, in the order of
        ``domain.timing.Spent``, then windows and tokens.
        """
        now = self.clock()
        covered = self._covered_at(now)
        report = {}
        for job in jobs:
            if (held := self._held.get(job)) is None:
                continue
            held.reported = (now, covered, list(held.sums))
            waited = max(0.0, covered - held.covered - sum(held.sums[:CORE]))
            spent = [int(US * seconds) for seconds in (now - held.since, waited, *held.sums[:WINDOWS])]
            report[job] = [*spent, int(held.sums[WINDOWS]), int(held.sums[TOKENS])]
        return report

    def settle(self, jobs: Iterable[str], still_held: Collection[str]) -> None:
        """Note that the last report of these jobs was kept; forget those that are not held any more."""
        for job in jobs:
            if (held := self._held.get(job)) is None:
                continue
            if job in still_held:
                held.since, held.covered, reported = held.reported
                held.sums = [after - before for after, before in zip(held.sums, reported, strict=True)]
            else:
                self.account.lose(held.sums, held.reported[2])
                del self._held[job]

    def keep(self, still_held: Collection[str]) -> None:
        """Forget all other jobs: they were canceled, handed back, or lost with their lease."""
        for job, held in self._held.items():
            if job not in still_held:
                self.account.lose(held.sums)
        self._held = {job: held for job, held in self._held.items() if job in still_held}

    def redis_us(self) -> int | None:
        """Return the present time of Redis, or None before the first claim."""
        if self._redis is None:
            return None
        redis_s, at = self._redis
        return int(US * (redis_s + self.clock() - at))

    def _covered_at(self, now: float) -> float:
        return self._covered + (now - self._since if self._depth else 0.0)


class CostBook:
    """What the items of a core cost. Items are noted as they are answered, their core time comes with the commit."""

    def __init__(self, costs: deque[ItemCosts] | None = None) -> None:
        """``costs`` takes what is found out."""
        self._costs = deque[ItemCosts]() if costs is None else costs
        #: Slices by job that are answered and not committed: what is known of ``ItemCosts`` by then.
        self._answered: dict[str, list[tuple[str, str, int, int, int, int]]] = {}

    @property
    def has_enough(self) -> bool:
        """Whether so much was found out since the last heartbeat that lone questions teach nothing new."""
        return len(self._costs) >= ENOUGH_COSTS

    def note(self, job: str, version: str, its_class: str, items: int, sums: tuple[int, int, int]) -> None:
        """Note an answered slice of a job: its items, then their estimated tokens, tokens and windows."""
        self._answered.setdefault(job, []).append((version, its_class, items, *sums))

    def settle(self, spent: Mapping[str, Sequence[int]], *, is_idle: bool) -> None:
        """Share what was spent on jobs, as ``TimeBook.report`` has it, among their answered slices, by tokens.

        ``is_idle`` says that no items are left in progress.
        """
        for job, sums in spent.items():
            if (slices := self._answered.pop(job, None)) is not None:
                a_token = sums[SPENT_CORE] / max(1, sum(each[4] for each in slices))
                self._costs.extend((*each, int(a_token * each[4])) for each in slices)
        if is_idle:
            self._answered.clear()
