"""Forecast how long requests take on a number of cores, by a formula, and how many cores a load needs. Pure.

A request has two service times: ``alone_s`` on an idle core, and ``full_s`` in full batches, where its share of a
core's time is ``share_s``. Requests wait for a core by the formula of Allen and Cunneen for
queues with several servers, in Sakasegawa's form (Sakasegawa 1977, Ann. Inst. Stat. Math. 29, 67-75)::

wait = (Ca² + Cs²) / 2 * p / cores * (service + share * load / (1 - load)), p = busy ** (√(2 (cores + 1)) - 1)

``Ca`` and ``Cs`` are the coefficients of variation of the gaps between requests and of their times. ``busy`` is the
load if each request has its own batches, ``load`` the load if batches are full. With batches of one row this is the
usual formula, and for even times on one core (M/D/1) it is exact.
"""

import math
import random
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corelane.domain.dispatch import MIN_TEXT_SHARE, SPECIAL_TOKENS, count_windows, measure, overlap
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.profile import Profile, variation
from corelane.plugins.lab.traces import TraceEntry

#: Tokens that neighbouring windows of a long text share, if the options of a job say nothing.
OVERLAP = 128

#: Most requests that represent a load.
SAMPLE = 500

#: Length of the busiest part of a trace, for which it is planned, in seconds.
BUSIEST_S = 60.0

#: Most cores that are considered.
MOST_CORES = 4096

#: An item: the tokens of its windows.
Windows = Sequence[int]


@dataclass(frozen=True, slots=True)
class Mix:
    """Items to draw from, each with the tokens of its windows; ``ratio`` is tokens read over tokens estimated."""

    items: Sequence[Windows]
    longest: int
    ratio: float = 1.0

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str]], profile: Profile) -> "Mix":
        """Return items, each a text and what stands beside it, as a profile's model reads them."""
        sizes: dict[str, float] = {}
        items = []
        for beside, text in parts:
            if text not in sizes:
                sizes[text] = measure(text)
            items.append(windows_of(measure(beside), sizes[text], profile.tokens_ratio, profile.longest))
        return cls(items, profile.longest, profile.tokens_ratio)

    @property
    def tokens(self) -> float:
        """The mean tokens of an item."""
        return statistics.fmean(map(sum, self.items))

    @property
    def windows(self) -> float:
        """The mean windows of an item."""
        return statistics.fmean(map(len, self.items))


def windows_of(beside_tokens: float, text_tokens: float, ratio: float, longest: int) -> Windows:
    """Return the tokens of the windows of an item, from the estimated tokens of its texts."""
    beside = min(SPECIAL_TOKENS + ratio * beside_tokens, longest * (1 - MIN_TEXT_SHARE))
    room, left = longest - beside, ratio * text_tokens
    count = count_windows(left, room, OVERLAP)
    last = left - (count - 1) * (room - overlap(room, OVERLAP))
    return (*[longest] * (count - 1), min(longest, math.ceil(beside + last)))


def cut(tokens: int, longest: int) -> Windows:
    """Return windows with ``tokens`` tokens in total; all but the last are full."""
    count, rest = divmod(max(1, tokens), longest)
    return (*[longest] * count, *([rest] if rest else []))


@dataclass(frozen=True, slots=True)
class Demand:
    """The load on the service, and the objective: 95 of 100 requests within ``objective_s``.

    ``requests`` represents all requests: each is a list of items. ``peak`` is the ratio of the planned rate to the mean
    rate, ``burstiness`` the coefficient of variation of the gaps, and ``margin`` is subtracted from the objective.
    """

    rate_per_s: float
    requests: Sequence[Sequence[Windows]]
    objective_s: float
    mix: Mix
    burstiness: float = 1.0
    peak: float = 1.0
    margin: float = 0.1

    @property
    def items_per_s(self) -> float:
        """The mean rate of items."""
        return self.rate_per_s * statistics.fmean(map(len, self.requests))

    @property
    def goal_s(self) -> float:
        """The objective minus its margin."""
        return self.objective_s * (1 - self.margin)


def demand_of_rate(
    rate_per_s: float, mix: Mix, objective_s: float, *, items: int = 1, burstiness: float = 1.0, margin: float = 0.1
) -> Demand:
    """Return the demand of a steady rate of requests, each with ``items`` items of a mix."""
    dice = random.Random(0)
    whole = [[item] for item in mix.items[:SAMPLE]]
    requests = whole if items == 1 else [dice.choices(mix.items, k=items) for _ in range(SAMPLE)]
    return Demand(rate_per_s, requests, objective_s, mix, burstiness=burstiness, margin=margin)


def demand_of_trace(
    entries: Sequence[TraceEntry], speed: float, mix: Mix, objective_s: float, *, margin: float = 0.1
) -> Demand:
    """Return the demand of a trace: its requests, and the rate and the gaps of its busiest part."""
    times = [entry.at_s / speed for entry in entries]
    length_s = max(times[-1] - times[0], 1e-9)
    rate = max(1, len(times) - 1) / length_s
    within_s = min(BUSIEST_S, length_s)
    ends = [bisect_right(times, at_s + within_s) for at_s in times]
    first = max(range(len(times)), key=lambda first: ends[first] - first)
    part = times[first : ends[first]]
    gaps = [later - at_s for at_s, later in pairwise(part)]
    dice = random.Random(0)
    return Demand(
        rate_per_s=rate,
        requests=[_items(entry, mix, dice) for entry in entries[:: max(1, len(entries) // SAMPLE)]],
        objective_s=objective_s,
        mix=mix,
        burstiness=variation(gaps) if len(gaps) > 1 else 1.0,
        peak=max(1.0, (len(part) - 1) / within_s / rate),
        margin=margin,
    )


def _items(entry: TraceEntry, mix: Mix, dice: random.Random) -> Sequence[Windows]:
    if entry.tokens is None:
        return dice.choices(mix.items, k=entry.items)
    return [cut(math.ceil(mix.ratio * entry.tokens / entry.items), mix.longest)] * entry.items


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The seconds of one request: by itself, in full batches, and its share of a core's time in full batches."""

    alone_s: float
    full_s: float
    share_s: float
    rows: float


def request_times(profile: Profile, items: Sequence[Windows]) -> RequestTimes:
    """Return the seconds of a request on an undisturbed core."""
    lengths = Counter(profile.length_of(tokens) for windows in items for tokens in windows)
    windows, tokens = sum(lengths.values()), sum(map(sum, items))
    own_s = profile.tokenize_token_s * tokens + profile.merge_row_s * windows
    own_s += profile.exchange_item_s * (len(items) - 1)
    alone_s = full_s = share_s = rows = 0.0
    for length, count in lengths.items():
        most = profile.most_rows(length)
        whole_s, (passes, rest) = profile.batch_s(length, most), divmod(count, most)
        alone_s += passes * whole_s + (profile.batch_s(length, rest) if rest else 0.0)
        full_s += -(-count // most) * whole_s
        share_s += count / most * (whole_s + profile.exchange_s)
        rows += count * most / windows
    trip_s = profile.exchange_s + own_s
    return RequestTimes(alone_s + trip_s, full_s + trip_s, min(alone_s + trip_s, share_s + own_s), rows)


@dataclass(frozen=True, slots=True)
class CoresOutlook:
    """The forecast for some cores: latencies in seconds, infinite beyond what the cores can do, and the mean wait."""

    cores: int
    p50_s: float
    p95_s: float
    p99_s: float
    wait_s: float
    busy: float
    batch_rows: float


class LoadForecast:
    """The formula for one profile and one load."""

    def __init__(self, profile: Profile, demand: Demand) -> None:
        self.profile, self.demand = profile, demand
        self._times = [request_times(profile, items) for items in demand.requests]
        self._rate_per_s = demand.peak * demand.rate_per_s
        self._alone_s = statistics.fmean(each.alone_s for each in self._times)
        self._share_s = statistics.fmean(each.share_s for each in self._times)
        self._rows = statistics.fmean(each.rows for each in self._times)

    def look(self, cores: int, factor: float = 1.0) -> CoresOutlook:
        """Return the forecast for ``cores`` cores at ``factor`` times the load's rate."""
        profile, rate = self.profile, factor * self._rate_per_s
        # The more cores are at work at once, the longer each takes, and so still more of them are at work.
        slowest = profile.stretch(cores, rate, profile.hosts(cores)) - 1
        undisturbed = rate * self._alone_s / cores
        at_work = min(1.0, undisturbed / max(1e-9, 1 - slowest * undisturbed))
        stretch = 1 + slowest * at_work
        alone_s, share_s = stretch * self._alone_s, stretch * self._share_s
        busy, load = min(1.0, rate * alone_s / cores), rate * share_s / cores
        # Batches fill up just enough for the cores to keep up.
        fill = min(1.0, max(0.0, (alone_s - cores / rate) / (alone_s - share_s))) if alone_s > share_s else 0.0
        services = sorted(stretch * (each.alone_s + fill * (each.full_s - each.alone_s)) for each in self._times)
        odds = busy ** (math.sqrt(2 * (cores + 1)) - 1)
        varied = (self.demand.burstiness**2 + variation(services) ** 2 + profile.noise**2) / 2
        waiting = load / (1 - load) if load < 1 else math.inf
        wait_s = varied * odds / cores * (statistics.fmean(services) + share_s * waiting) if varied else 0.0
        p50_s, p95_s, p99_s = (
            self._quantile(share, services, wait_s, odds, busy) if load < 1 else math.inf for share in (0.5, 0.95, 0.99)
        )
        busy_share = min(1.0, rate * (alone_s + fill * (share_s - alone_s)) / cores)
        batch_rows = min(self._rows, 1 + fill * (self._rows - 1))
        return CoresOutlook(cores, p50_s, p95_s, p99_s, wait_s, busy_share, batch_rows)

    def find(self) -> CoresOutlook:
        """Return the fewest cores that meet the objective; raise InvalidInput if no number of cores does."""
        least = max(1, math.floor(self._rate_per_s * self._share_s))
        if least > MOST_CORES:
            raise InvalidInput(f"the load needs {least:,} cores at least; the planner looks for {MOST_CORES:,} at most")
        for cores in range(least, MOST_CORES + 1):
            outlook = self.look(cores)
            if outlook.p95_s <= self.demand.goal_s:
                return outlook
        idle_s = self.look(MOST_CORES, 1e-6).p95_s
        raise InvalidInput(
            f"no number of cores is done with 95% within {1000 * self.demand.objective_s:.0f} ms less "
            f"{self.demand.margin:.0%}: on idle cores these requests take {1000 * idle_s:.0f} ms"
        )

    def breaking_rate(self, cores: int) -> float:
        """Return the request rate above which ``cores`` cores miss the objective, without its margin; 0 if any does."""
        low, high = 0.0, 1.0
        while self.look(cores, high).p95_s <= self.demand.objective_s:
            low, high = high, 2 * high
        while high - low > 0.001 * high and high > 1e-6:
            middle = (low + high) / 2
            meets = self.look(cores, middle).p95_s <= self.demand.objective_s
            low, high = (middle, high) if meets else (low, middle)
        return low * self.demand.rate_per_s

    def _quantile(self, share: float, services: Sequence[float], wait_s: float, odds: float, busy: float) -> float:
        """Return the time of this share of requests: its parts are independent, so their excesses add up by squares."""
        laden = self.profile.contention.overhead
        around = self.profile.overhead.towards(laden, busy if laden.mean_s else 0.0)
        means = [statistics.fmean(services), wait_s, around.mean_s]
        # Requests that wait at all wait for exponentially distributed times.
        waited = wait_s / odds * math.log(odds / (1 - share)) if odds > 1 - share else 0.0
        found = [services[min(len(services) - 1, int(share * len(services)))], waited, around.quantile_s(share)]
        above = [value - mean for value, mean in zip(found, means, strict=True)]
        whole = sum(means) + (1 - busy) * self.profile.wake_s
        return max(0.0, whole + math.copysign(math.hypot(*above), sum(above)))
