"""Which hosts could serve a load, and what they cost: for each type the fewest cores that meet the objective. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.instances import Instance
from corelane.domain.prices import cost_per_million
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.hosts import ModelWeight, hosts_for
from corelane.plugins.lab.planning.profile import Profile
from corelane.plugins.lab.planning.published import family_of, guess
from corelane.plugins.lab.planning.search import Demand, Outlook, find


@dataclass(frozen=True, slots=True)
class Candidate:
    """Hosts of one type that serve the load. ``per_hour`` is None where no price is known."""

    instance: Instance
    profile: Profile
    outlook: Outlook
    hosts: int
    binds: str
    per_hour: float | None
    per_million: float | None

    @property
    def cost(self) -> float:
        """Return what an hour costs; infinite where that is not known."""
        return math.inf if self.per_hour is None else self.per_hour


@dataclass(frozen=True, slots=True)
class NoCandidate:
    """A type that cannot serve the load, and why."""

    name: str
    reason: str


def compare(
    profiles: Mapping[str, Profile],
    own: Profile,
    demand: Demand,
    instances: Iterable[Instance],
    *,
    reserved: bool = False,
) -> tuple[list[Candidate], list[NoCandidate]]:
    """Return the hosts that could serve the load, cheapest first, and those that could not.

    ``profiles`` are measured ones by family; others are guessed from ``own``. All types of a family have the same
    cores, so a family is simulated once.
    """
    found: list[Candidate] = []
    refused: list[NoCandidate] = []
    outlooks: dict[str, Outlook | InvalidInput] = {}
    for instance in instances:
        family = family_of(instance.name)
        try:
            profile = profiles.get(family) or guess(own, family)
        except InvalidInput as error:
            refused.append(NoCandidate(instance.name, error.detail))
            continue
        if family not in outlooks:
            outlooks[family] = _outlook(profile, demand)
        outlook = outlooks[family]
        if isinstance(outlook, InvalidInput):
            refused.append(NoCandidate(instance.name, outlook.detail))
            continue
        made = _candidate(instance, profile, outlook, demand, reserved=reserved)
        if isinstance(made, Candidate):
            found.append(made)
        else:
            refused.append(made)
    return sorted(found, key=lambda each: (each.cost, each.hosts, each.outlook.cores)), refused


def choose(found: Sequence[Candidate]) -> Candidate:
    """Return the cheapest of those whose cores were measured; the cheapest of all where none was."""
    return next((each for each in found if each.profile.guess is None), found[0])


def _outlook(profile: Profile, demand: Demand) -> Outlook | InvalidInput:
    try:
        return find(profile, demand)
    except InvalidInput as error:
        return error


def _candidate(
    instance: Instance, profile: Profile, outlook: Outlook, demand: Demand, *, reserved: bool
) -> Candidate | NoCandidate:
    weight = ModelWeight.of(profile.device_bytes or 0, profile.worker_bytes)
    hosts = hosts_for(instance, outlook.cores, weight, requests_per_s=demand.rate_per_s, items_per_s=demand.items_per_s)
    if hosts is None:
        return NoCandidate(instance.name, "a worker of this model does not fit on it")
    price = instance.usd_reserved_per_hour if reserved else instance.usd_per_hour
    per_hour = None if price is None else hosts[0] * price
    per_million = None if per_hour is None else cost_per_million(per_hour, demand.items_per_s)
    return Candidate(instance, profile, outlook, hosts[0], hosts[1], per_hour, per_million)
