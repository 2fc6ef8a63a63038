"""Admission: what is asked before a job is taken in. Which version its model means, whether there is room, and when
the job will be done. One trip, and nothing is written.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.aliases import choose
from corelane.domain.forecast import Forecast, Own, Size, Speed, drain_rate, forecast, tokens_ahead, tokens_until
from corelane.errors import DeadlineInfeasible, Overloaded
from corelane.settings import Settings
from corelane.store.link.surface import CommonLink, pairs

#: The drain rate is measured over this many full seconds.
RATE_SECONDS = 10

#: Nobody is asked to come back later than this, in seconds.
MAX_RETRY_AFTER_S = 3600


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of the fleet as a job arrives: outstanding tokens and those still in files, by owner and priority;
    speeds; open jobs by priority; what waits of the owner who asks, by priority.
    """

    version: str | None
    owed: Mapping[tuple[str, int], int]
    unfed: Mapping[tuple[str, int], int]
    speeds: Sequence[Speed]
    open_jobs: Sequence[int]
    #: Whether a living core holds the version.
    is_held: bool = True
    own: Sequence[Own] = (Own(), Own(), Own())


@dataclass(frozen=True, slots=True)
class Promise:
    """What a job is told of its turn: jobs and tokens before it, and the forecast, if speed was measured."""

    position: int
    tokens_ahead: int
    forecast: Forecast | None


async def look(link: CommonLink, model: str, key: str, owner: str) -> Admission:
    """Return what an alias, a name or a version means now for a key, and how much waits, of an owner and in all."""
    found, owed, unfed, open_jobs, own = await link.run("admit", model=model, owner=owner)
    speeds = {version.decode(): its_speeds for version, _, its_speeds in found}
    version = choose({version.decode(): float(weight) for version, weight, _ in found}, key) if found else None
    return Admission(
        version,
        _accounts(owed),
        _accounts(unfed),
        [Speed.decode(speed.decode()) for speed in (speeds[version] if version else ()) if speed is not None],
        [int(count) for count in open_jobs],
        bool(version and speeds[version]),
        [Own(*map(int, counts)) for counts in own],
    )


async def require_room(link: CommonLink, settings: Settings, admission: Admission, owner: str, tokens: int) -> None:
    """Refuse what would pass a bound on waiting work, in all or for one owner; raises Overloaded."""
    own = sum(count for (who, _), count in admission.owed.items() if who == owner)
    most, own_most = settings.max_outstanding_tokens, settings.max_owner_tokens
    excess, own_excess = sum(admission.owed.values()) + tokens - most, own + tokens - own_most
    if excess <= 0 and own_excess <= 0:
        return
    answered, speeds = await link.run("drain_rates", seconds=RATE_SECONDS)
    known = [Speed.decode(speed.decode()) for speed in speeds if speed is not None]
    rate = drain_rate([int(tokens) for tokens in answered], known or admission.speeds)
    if own_excess > excess:
        retry_after_s = seconds_until(tokens_until(admission.owed, owner, own_excess), rate)
        bound = f"{own_most:,} tokens may wait for one API key and this job would pass that by {own_excess:,}"
    else:
        retry_after_s = seconds_until(excess, rate)
        bound = f"{most:,} tokens may wait and this job would pass that by {excess:,}"
    raise Overloaded(f"{bound}; nothing was kept, come back in {retry_after_s} s", retry_after_s)


def make_promise(admission: Admission, owner: str, priority: int, tokens: int, slices: int) -> Promise:
    """Estimate the turn of a job of so many tokens. Its owner's larger jobs that wait do not go before a small one."""
    waiting = Counter(admission.owed) + Counter(admission.unfed)
    size, own = Size(tokens, slices), admission.own[priority]
    ahead = tokens_ahead(waiting, owner, priority, size, own)
    position = sum(admission.open_jobs[: priority + 1]) - (own.larger_jobs if size.is_small else 0)
    return Promise(max(0, position), ahead, forecast(ahead, tokens, slices, admission.speeds))


def require_in_time(promise: Promise, expires_in_s: float) -> None:
    """Refuse a job that would not be done in time; raises DeadlineInfeasible."""
    if promise.forecast is None or promise.forecast.expected_s <= expires_in_s:
        return
    earliest_s = math.ceil(promise.forecast.latest_s)
    raise DeadlineInfeasible(
        f"{promise.tokens_ahead:,} tokens go first: this job would take {promise.forecast.expected_s:.0f} s, not "
        f"{expires_in_s:g} s; nothing was kept, {earliest_s} s can be met",
        earliest_s,
    )


def seconds_until(tokens: int, tokens_per_s: float) -> int:
    """When so many tokens will have been answered at a rate; between 1 s and an hour."""
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(tokens / tokens_per_s))) if tokens_per_s else MAX_RETRY_AFTER_S


def _accounts(flat: Sequence[bytes]) -> dict[tuple[str, int], int]:
    """OWNER:P and tokens as they stand in the store."""
    accounts = {}
    for name, tokens in pairs(flat):
        owner, _, priority = name.decode().rpartition(":")
        accounts[owner, int(priority)] = int(tokens)
    return accounts
