"""How many cores a load needs: the fewest with which it meets its objective in enough of the simulated runs. Pure.

Every run has a seed of its own, for arrivals, items and noise. The first tenth of each run's requests are left out.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from corelane.domain.arrivals import Arrivals, Due
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.mix import Mix
from corelane.plugins.lab.planning.profile import Profile
from corelane.plugins.lab.planning.simulate import Arrival, Simulated, simulate

#: Runs that decide, and those that only lead the way.
RUNS, SCOUTS = 10, 3

#: Requests of a run: fewer say little of a p95 of requests that wait for each other.
REQUESTS = 4000

#: The share of a run's first requests that are left out.
WARM_UP = 0.1

#: More cores than this are not looked for.
MOST_CORES = 4096

#: The rate at which a number of cores breaks is found to within this share; not where it is this much below the load.
RATE_WITHIN, LEAST_FACTOR = 0.02, 0.01


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the service, and the objective: ``share`` of requests within ``objective_s``.

    ``arrivals`` makes the due times of a seed. ``margin`` is taken off the objective, and ``confidence`` is the share
    of runs that must meet it.
    """

    arrivals: Callable[[int], Arrivals]
    mix: Mix
    objective_s: float
    share: float = 0.95
    items: int = 1
    margin: float = 0.1
    confidence: float = 0.9
    requests: int = REQUESTS
    #: The rate is this many times that of the arrivals.
    factor: float = 1.0

    @property
    def rate_per_s(self) -> float:
        """Return the mean rate of requests."""
        return self.factor * self.arrivals(0).rate_per_s

    @property
    def items_per_s(self) -> float:
        """Return the mean rate of items."""
        trace = self.arrivals(0).trace
        each = statistics.fmean(entry.items for entry in trace) if trace else self.items
        return self.rate_per_s * each

    def run(self, seed: int) -> Iterator[Arrival]:
        """Return the requests of a run."""
        due = (Due(each.at_s / self.factor, each.items, each.tokens) for each in self.arrivals(seed).due())
        limited = (each for _, each in zip(range(self.requests), due, strict=False))
        return self.mix.arrivals(limited, seed=seed, items=self.items)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of so many cores: figures of single runs, and means over them. Latencies are in seconds."""

    cores: int
    #: The latency within which the objective's share of requests ended, by run.
    reached_s: Sequence[float]
    p50_s: float
    p95_s: float
    p99_s: float
    busy: float
    batch_rows: float
    padding: float
    #: The share of runs that met the objective.
    met: float

    @property
    def low_s(self) -> float:
        """Return the lowest of the runs."""
        return min(self.reached_s)

    @property
    def high_s(self) -> float:
        """Return the highest of the runs."""
        return max(self.reached_s)


@dataclass(frozen=True, slots=True)
class Edges:
    """Beside a number of cores: what is expected with one less and one more, and the rate at which it breaks."""

    fewer: Outlook | None
    more: Outlook
    breaks_at_per_s: float


def look(profile: Profile, cores: int, demand: Demand, runs: int = RUNS) -> Outlook:
    """Simulate so many runs with so many cores."""
    found = [simulate(profile, cores, demand.run(seed), seed=seed) for seed in range(1, runs + 1)]
    latencies = [settled(each) for each in found]
    reached = [percentile(each, demand.share) for each in latencies]
    goal_s = demand.objective_s * (1 - demand.margin)
    read = sum(each.tokens + each.padding for each in found)
    return Outlook(
        cores=cores,
        reached_s=reached,
        p50_s=statistics.fmean(percentile(each, 0.5) for each in latencies),
        p95_s=statistics.fmean(percentile(each, 0.95) for each in latencies),
        p99_s=statistics.fmean(percentile(each, 0.99) for each in latencies),
        busy=statistics.fmean(_busy(each) for each in found),
        batch_rows=sum(each.rows for each in found) / max(1, sum(each.batches for each in found)),
        padding=sum(each.padding for each in found) / max(1, read),
        met=statistics.fmean(each <= goal_s for each in reached),
    )


def find(profile: Profile, demand: Demand, most: int = MOST_CORES) -> Outlook:
    """Return the fewest cores that meet the objective; raise InvalidInput where no number of them does."""
    least = max(1, math.floor(_core_seconds(profile, demand)))
    if least > most:
        raise InvalidInput(f"the load needs {least:,} cores at least; the planner looks for {most:,} at most")
    cores = _scout(profile, demand, least, most)
    chosen = look(profile, cores, demand)
    while chosen.met < demand.confidence and cores < most:
        cores += max(1, cores // 20)
        chosen = look(profile, cores, demand)
    if chosen.met < demand.confidence:
        raise _unreachable(profile, demand)
    return chosen


def edges(profile: Profile, cores: int, demand: Demand) -> Edges:
    """Return what lies beside a number of cores."""
    return Edges(
        fewer=look(profile, cores - 1, demand, SCOUTS) if cores > 1 else None,
        more=look(profile, cores + 1, demand, SCOUTS),
        breaks_at_per_s=breaking_rate(profile, cores, demand),
    )


def breaking_rate(profile: Profile, cores: int, demand: Demand) -> float:
    """Return the rate of requests above which so many cores miss the objective, without its margin; 0 if at any."""

    def meets(factor: float) -> bool:
        asked = replace(demand, factor=demand.factor * factor, margin=0.0)
        return look(profile, cores, asked, SCOUTS).met >= demand.confidence

    low, high = 0.0, 1.0
    while meets(high):
        low, high = high, 1.5 * high
        if high > 1000:
            return math.inf
    while high - low > RATE_WITHIN * high and high > LEAST_FACTOR:
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low * demand.rate_per_s


def settled(simulated: Simulated) -> list[float]:
    """Return the latencies of a run without those of its beginning; a run that was given up has no end."""
    if simulated.is_hopeless:
        return [math.inf]
    latencies = simulated.latencies
    return latencies[int(WARM_UP * len(latencies)) :]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies, between its neighbours."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low, rest = int(at), at - int(at)
    if not rest or math.isinf(ordered[low]):
        return ordered[low]
    return ordered[low] + rest * (ordered[low + 1] - ordered[low])


def _scout(profile: Profile, demand: Demand, least: int, most: int) -> int:
    """Return the fewest cores that a few runs call enough, or ``most``."""
    below, cores = least - 1, least
    while look(profile, cores, demand, SCOUTS).met < 1:
        if cores >= most:
            return most
        below, cores = cores, min(most, max(cores + 1, cores * 3 // 2))
        if cores > 8 * least + 8 and _is_floor(profile, cores, demand):
            raise _unreachable(profile, demand)
    while cores - below > 1:
        middle = (below + cores) // 2
        if look(profile, middle, demand, SCOUTS).met < 1:
            below = middle
        else:
            cores = middle
    return cores


def _is_floor(profile: Profile, cores: int, demand: Demand) -> bool:
    """Return whether more cores make next to no difference."""
    now, double = (look(profile, count, demand, 1).reached_s[0] for count in (cores, 2 * cores))
    return double > 0.99 * now


def _unreachable(profile: Profile, demand: Demand) -> InvalidInput:
    idle = replace(demand, factor=demand.factor * 1e-4, requests=200)
    floor_s = look(profile, 8, idle, 1).reached_s[0]
    return InvalidInput(
        f"no number of cores answers {demand.share:.0%} within {1000 * demand.objective_s:.0f} ms less "
        f"{demand.margin:.0%}: on idle cores these requests take {1000 * floor_s:.0f} ms"
    )


def _core_seconds(profile: Profile, demand: Demand) -> float:
    """Return the seconds of cores that a second of the load needs, at the least."""
    tokens_s = min(profile.batch_s(bucket, bucket.rows) / (bucket.rows * bucket.length) for bucket in profile.ladder)
    return demand.items_per_s * demand.mix.tokens * tokens_s


def _busy(simulated: Simulated) -> float:
    whole = len(simulated.busy_s) * simulated.elapsed_s
    return min(1.0, sum(simulated.busy_s) / whole) if whole else 0.0
