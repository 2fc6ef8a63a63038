"""The simulated service: requests come, cores claim, choose batches and commit as the real ones do. Pure and seeded.

Claims follow the store's rules (``lane``); batches are chosen by the engine's own code. A round of a core is one trip
to Redis, which commits what is answered and claims what there is room for, then one batch that runs to its end. Where
batches leave the CPU free, the trip takes place while the batch runs. Time is virtual: seconds since the first arrival
could have come.
"""

import heapq
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from corelane.domain.dispatch import BESIDE_TOKENS, SMALL_TOKENS
from corelane.engine.batching import Share, WaitingItem, full, next_batch, smallest_fit
from corelane.engine.buckets import Bucket
from corelane.engine.passes import Pace, choose
from corelane.engine.windows import Window
from corelane.plugins.lab.planning.lane import Lane, SimulatedJob, Slice, Windows
from corelane.plugins.lab.planning.profile import Profile, draw

#: A job with no more tokens than this waiting is answered by itself, where few rows take less time: as in
#: `engine/runner.py`.
LITTLE_TOKENS = 512

#: The rate that requests come at is followed over about this many seconds.
RATE_WINDOW_S = 2.0

#: A simulation is given up where work still waits this many seconds after the last request came.
HOPELESS_S = 120.0

#: Draws the factor by which one batch takes longer or shorter.
Noise = Callable[[random.Random], float]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it is due, and its items, each with the tokens of its windows."""

    at_s: float
    items: Sequence[Windows]


@dataclass(slots=True)
class Simulated:
    """What became of the requests: jobs in the order they came, and what the cores did."""

    jobs: list[SimulatedJob]
    latencies: list[float]
    #: Time in which a core was at work, by core, and the time until the last request came.
    busy_s: list[float]
    elapsed_s: float
    batches: int = 0
    rows: int = 0
    tokens: int = 0
    padding: int = 0
    #: Jobs without an answer when the last request came.
    backlog: int = 0
    #: Whether the simulation was given up, as work came faster than it was done.
    is_hopeless: bool = False


@dataclass(slots=True, eq=False)
class SimulatedCore:
    """One core: what it holds, and what it does next."""

    number: int
    pace: Pace
    shares: dict[str, Share] = field(default_factory=dict)
    waiting: dict[int, tuple[Slice, WaitingItem]] = field(default_factory=dict)
    held: dict[int, Slice] = field(default_factory=dict)
    done: list[Slice] = field(default_factory=list)
    is_rung: bool = False
    is_at_work: bool = False
    idle_since: float = 0.0
    busy_s: float = 0.0
    #: The batch that runs: when it ends, and its rows.
    running: list[tuple[WaitingItem, Window]] | None = None

    @property
    def tokens(self) -> int:
        """Return the tokens claimed and not yet answered."""
        return sum(each.tokens for each in self.held.values())


def simulate(
    profile: Profile, cores: int, arrivals: Iterable[Arrival], *, seed: int = 0, noise: Noise | None = None
) -> Simulated:
    """Let requests come to so many cores; return what became of them."""
    return Simulation(profile, cores, arrivals, random.Random(seed), noise or noise_of(profile)).run()


def noise_of(profile: Profile) -> Noise:
    """Return the noise of a profile's batches: lognormal, its mean 1."""
    if not profile.noise:
        return lambda _: 1.0
    sigma = math.sqrt(math.log1p(profile.noise**2))
    return lambda dice: dice.lognormvariate(-sigma * sigma / 2, sigma)


class Simulation:
    """One run. Events are kept in a heap: (time, number, what happens)."""

    def __init__(
        self, profile: Profile, cores: int, arrivals: Iterable[Arrival], dice: random.Random, noise: Noise
    ) -> None:
        self._profile = profile
        self._limits = profile.limits
        self._hosts = profile.hosts(cores)
        self._ladder = profile.ladder
        self._dice = dice
        self._noise = noise
        self._now = 0.0
        self._arrivals = iter(arrivals)
        self._lane = Lane(self._limits)
        self._cores = [SimulatedCore(n, Pace(self._limits.latency_target_s, self._clock)) for n in range(cores)]
        for core in self._cores:
            for bucket in self._ladder:
                core.pace.note(bucket, bucket.rows, profile.batch_s(bucket, bucket.rows))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._items = 0
        self._at_work = 0
        self._rate = 0.0
        self._last_s = 0.0
        self._last_end_s = 0.0
        self._result = Simulated([], [], [], 0.0)

    def run(self) -> Simulated:
        """Run until the last request is answered."""
        self._next_arrival()
        while self._events:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
            if self._lane.jobs and self._now > self._last_s + HOPELESS_S:
                self._result.is_hopeless = True
                break
        result = self._result
        result.latencies = [job.ended_s - job.at_s if job.ended_s else math.inf for job in result.jobs]
        result.busy_s = [core.busy_s for core in self._cores]
        result.elapsed_s = self._last_s
        result.backlog = sum(job.ended_s is None or job.ended_s > self._last_s for job in result.jobs)
        return result

    def _clock(self) -> float:
        return self._now

    def _later(self, delay_s: float, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._now + delay_s, self._number, happen))

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self._number += 1
            heapq.heappush(self._events, (arrival.at_s, self._number, lambda: self._arrive(arrival)))

    def _arrive(self, arrival: Arrival) -> None:
        """Admit a request: it waits in its lane once it is submitted."""
        self._next_arrival()
        passed_s = self._now - self._last_s
        self._rate += (1 - math.exp(-passed_s / RATE_WINDOW_S)) * (1 / max(passed_s, 1e-3) - self._rate)
        self._last_s = self._now
        job = SimulatedJob(len(self._result.jobs), self._now, arrival.items, left=len(arrival.items))
        self._result.jobs.append(job)
        self._later(self._overhead_s(is_front=True), lambda: self._queue(job))

    def _queue(self, job: SimulatedJob) -> None:
        job.queued_s = self._now
        slices = self._lane.put(job)
        for core in sorted(self._cores, key=lambda core: core.tokens) if slices else ():
            if slices and not core.is_rung:
                self._ring(core)
                slices -= 1

    def _ring(self, core: SimulatedCore) -> None:
        """Wake an idle core; one that is at work claims in its next round anyway."""
        core.is_rung = True
        if not core.is_at_work:
            slept = self._now - core.idle_since > self._limits.linger_s
            profile = self._profile
            core.is_at_work = True
            self._later(profile.asleep_s if slept else profile.wake_s, lambda: self._claim(core, is_woken=True))

    def _claim(self, core: SimulatedCore, *, is_woken: bool = False) -> None:
        """Make the trip that commits and claims, then read what was claimed."""
        done, core.done = core.done, []
        claimed = self._take(core)
        trip_s = 0.0 if is_woken and not done else self._profile.exchange_s
        trip_s += self._profile.exchange_item_s * sum(each.count for each in (*done, *claimed))
        read_s = self._profile.tokenize_token_s * sum(each.tokens for each in claimed)
        if done:
            self._later(trip_s, lambda: self._commit(done))
        if not claimed and not core.waiting:
            core.is_rung = core.is_at_work = False
            core.idle_since = self._now
            core.busy_s += trip_s
            return
        core.is_rung = True
        core.busy_s += trip_s + read_s
        self._later(trip_s + read_s, lambda: self._start(core))

    def _take(self, core: SimulatedCore) -> list[Slice]:
        """Claim what there is room for, and admit it."""
        budget = self._limits.claim_tokens
        waiting = sum(min(item.tokens, budget // 8) for _, item in core.waiting.values())
        met_small = sum(each.tokens for each in core.held.values() if each.is_small)
        met_larger = any(not each.is_small for each in core.held.values())
        room, spare = max(0, budget - waiting), max(0, 2 * budget - waiting)
        met_small = met_small if met_small >= (BESIDE_TOKENS if met_larger else SMALL_TOKENS) else 0
        claimed = self._lane.claim(room, max(room, spare), met_small=met_small, met_larger=met_larger)
        for each in claimed:
            core.held[id(each)] = each
            for item in each.job.items[each.first : each.first + each.count]:
                self._items += 1
                windows = [Window(0, tokens, tokens) for tokens in item]
                job = str(each.job.number)
                core.pace.heard(job)
                core.waiting[self._items] = each, WaitingItem.of(self._items, windows, self._ladder, job=job)
        return claimed

    def _start(self, core: SimulatedCore) -> None:
        """Choose a batch and run it; where it leaves the CPU free, make the next trip meanwhile."""
        profile = self._profile
        most_rows = core.pace.rows if profile.flexible_rows else attrgetter("rows")
        rule = partial(choose, table=profile.table, most_rows=most_rows) if profile.chooses else full
        little = LITTLE_TOKENS if profile.chooses else 0
        chosen = next_batch((item for _, item in core.waiting.values()), core.shares, rule, little)
        if chosen is None:
            self._claim(core)
            return
        bucket, windows = chosen
        for item, _ in windows:
            job = core.waiting[item.arrival][0].job
            if job.began_s is None:
                job.began_s = self._now
        self._at_work += 1
        seconds = self._batch_s(bucket, [window for _, window in windows])
        self._count(core, bucket, windows, seconds)
        core.busy_s += seconds
        self._later(seconds, lambda: self._finish(core, windows))

    def _batch_s(self, bucket: Bucket, windows: Sequence[Window]) -> float:
        rows, stretch = len(windows), self._profile.stretch(self._at_work, self._rate, self._hosts)
        shorter = sum(bucket.length - smallest_fit(window.length, self._ladder).length for window in windows)
        alone_s = self._profile.batch_s(bucket, rows) + rows * self._profile.merge_row_s
        alone_s -= shorter * self._profile.table.token_s if self._profile.flexible_rows else 0.0
        return alone_s * stretch * self._noise(self._dice)

    def _count(
        self, core: SimulatedCore, bucket: Bucket, windows: Sequence[tuple[WaitingItem, Window]], seconds: float
    ) -> None:
        shape = self._profile.shape(bucket, len(windows))
        height = len(windows) if self._profile.flexible_rows else shape.rows
        core.pace.note(bucket, height, seconds)
        tokens = sum(window.length for _, window in windows)
        result = self._result
        result.batches += 1
        result.rows += len(windows)
        result.tokens += tokens
        result.padding += height * shape.length - tokens

    def _finish(self, core: SimulatedCore, windows: Sequence[tuple[WaitingItem, Window]]) -> None:
        self._at_work -= 1
        for item, _ in windows:
            if item.left or item.arrival not in core.waiting:
                continue
            each, _ = core.waiting.pop(item.arrival)
            each.done += 1
            if each.done == each.count:
                del core.held[id(each)]
                core.done.append(each)
        if self._profile.overlaps and core.waiting:
            self._go_on(core)
        else:
            self._claim(core)

    def _go_on(self, core: SimulatedCore) -> None:
        """Commit and claim while the next batch runs: its start waits for nothing."""
        done, core.done = core.done, []
        claimed = self._take(core)
        trip_s = self._profile.exchange_s
        trip_s += self._profile.exchange_item_s * sum(each.count for each in (*done, *claimed))
        if done:
            self._later(trip_s, lambda: self._commit(done))
        self._start(core)

    def _commit(self, done: Sequence[Slice]) -> None:
        for each in done:
            each.job.left -= each.count
            if not each.job.left:
                each.job.ended_s = self._now + self._overhead_s(is_front=False)

    def _overhead_s(self, *, is_front: bool) -> float:
        """Return a request's time before its lane, or after its commit, between those of an idle and a busy host."""
        idle, seen = self._profile.overhead, self._profile.contention
        laden = min(1.0, self._at_work / (seen.cores * self._hosts)) if seen.requests_per_s else 0.0
        busy = seen.overhead if seen.requests_per_s else idle
        own, other = (idle.front_s, busy.front_s) if is_front else (idle.reply_s, busy.reply_s)
        factor = draw(busy if self._dice.random() < laden else idle, self._dice.random())
        return ((1 - laden) * own + laden * other) * factor
