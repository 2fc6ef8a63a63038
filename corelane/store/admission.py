"""Admission: what is asked before a job is taken in. Which version its model means, whether there is room, and when
the job will be done. One trip, and nothing is written.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.aliases import choose
from corelane.errors import DeadlineInfeasible, Overloaded
from corelane.promises import Forecast, Speed, forecast, tokens_ahead
from corelane.settings import Settings
from corelane.store.async_link import AsyncLink
from corelane.store.connections import pairs

#: The drain rate is measured over this many full seconds.
RATE_SECONDS = 10

#: Nobody is asked to come back later than this, in seconds.
MAX_RETRY_AFTER_S = 3600


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of the fleet as a job arrives: outstanding tokens and those still in files, by owner and priority;
    speeds; open jobs by priority.
    """

    version: str | None
    owed: Mapping[tuple[str, int], int]
    unfed: Mapping[tuple[str, int], int]
    speeds: Sequence[Speed]
    open_jobs: Sequence[int]
    #: Whether a living core holds the version.
    is_held: bool = True


@dataclass(frozen=True, slots=True)
class Promise:
    """What a job is told of its turn: jobs and tokens before it, and the forecast, if speed was measured."""

    position: int
    tokens_ahead: int
    forecast: Forecast | None


async def look(link: AsyncLink, model: str, key: str) -> Admission:
    """What an alias, a name or a version means now for a key, and how much is waiting."""
    found, owed, unfed, open_jobs = await link.run("admit", model)
    speeds = {version.decode(): its_speeds for version, _, its_speeds in found}
    version = choose({version.decode(): float(weight) for version, weight, _ in found}, key) if found else None
    return Admission(
        version,
        _accounts(owed),
        _accounts(unfed),
        [Speed.decode(speed.decode()) for speed in (speeds[version] if version else ()) if speed is not None],
        [int(count) for count in open_jobs],
        bool(version and speeds[version]),
    )


async def require_room(link: AsyncLink, settings: Settings, admission: Admission, owner: str, tokens: int) -> None:
    """Refuse what would pass a bound on waiting work, in all or for one owner; raises Overloaded."""
    own = sum(count for (who, _), count in admission.owed.items() if who == owner)
    most, own_most = settings.max_outstanding_tokens, settings.max_owner_tokens
    excess, own_excess = sum(admission.owed.values()) + tokens - most, own + tokens - own_most
    if excess <= 0 and own_excess <= 0:
        return
    rates = await _drain_rates(link)
    if own_excess > excess:
        retry_after_s = seconds_until(own_excess, rates.get(owner, 0.0))
        bound = f"{own_most:,} tokens may wait for one API key and this job would pass that by {own_excess:,}"
    else:
        retry_after_s = seconds_until(excess, sum(rates.values()))
        bound = f"{most:,} tokens may wait and this job would pass that by {excess:,}"
    raise Overloaded(f"{bound}; nothing was kept, come back in {retry_after_s} s", retry_after_s)


def make_promise(admission: Admission, owner: str, priority: int, tokens: int, slices: int) -> Promise:
    """What a job of so many tokens can be told."""
    waiting = Counter(admission.owed) + Counter(admission.unfed)
    ahead = tokens_ahead(waiting, owner, priority, tokens)
    position = sum(admission.open_jobs[: priority + 1])
    return Promise(position, ahead, forecast(ahead, tokens, slices, admission.speeds))


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
    """When so many tokens will have been answered at the measured rate; between 1 s and an hour."""
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(tokens / tokens_per_s))) if tokens_per_s else MAX_RETRY_AFTER_S


async def _drain_rates(link: AsyncLink) -> dict[str, float]:
    """Tokens per second answered of late, by owner."""
    now_s = int((await link("TIME"))[0])
    seconds = await link.many([("HGETALL", f"cl:rate:{now_s - ago}") for ago in range(1, RATE_SECONDS + 1)])
    rates: dict[str, float] = {}
    for second in seconds:
        for owner, tokens in pairs(second):
            rates[owner.decode()] = rates.get(owner.decode(), 0.0) + int(tokens) / RATE_SECONDS
    return rates


def _accounts(flat: Sequence[bytes]) -> dict[tuple[str, int], int]:
    """OWNER:P and tokens as they stand in the store."""
    accounts = {}
    for name, tokens in pairs(flat):
        owner, _, priority = name.decode().rpartition(":")
        accounts[owner, int(priority)] = int(tokens)
    return accounts
