"""What a core changes about the models it holds, given what is wanted of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from corelane.placement import UNPLACED, Placement, is_wanted
from corelane.store.plans import Plan


class ModelState(StrEnum):
    """How far a core is with a version."""

    LAZY = "lazy"
    LOADING = "loading"
    LOADED = "loaded"
    READY = "ready"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"


#: States in which a core claims work for a version.
CLAIMING = (ModelState.READY, ModelState.DRAINING)


@dataclass(frozen=True, slots=True)
class Wish:
    """A version wanted here: since when, whether only on first use, and the manifest it must have."""

    version: str
    since_ms: int = 0
    lazy: bool = False
    manifest: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a core stands with a version: its state, and of which wish."""

    state: ModelState
    since_ms: int = 0


@dataclass(slots=True)
class Changes:
    """Versions to load now, to load on first use, to go on with, to drain, to leave between batches, to forget."""

    load: list[Wish] = field(default_factory=list)
    lazy: list[Wish] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    drain: list[str] = field(default_factory=list)
    leave: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)


def decide(plan: Plan, core: str, own: Sequence[str], standings: Mapping[str, Standing]) -> Changes:
    """What to do now, so that the core comes to hold what is wanted of it.

    ``own`` are the versions that the core's settings name. Nothing is left that only this core can still answer, unless
    that was forced.
    """
    wishes = wanted(plan, core, own)
    changes = Changes()
    for version, wish in wishes.items():
        standing = standings.get(version)
        waits = plan.waiting.get(version, 0) > 0
        if standing is None or (standing.state is ModelState.FAILED and wish.since_ms > standing.since_ms):
            (changes.lazy if wish.lazy and not waits else changes.load).append(wish)
        elif standing.state is ModelState.LAZY and (waits or not wish.lazy):
            changes.load.append(wish)
        elif standing.state is ModelState.DRAINING:
            changes.keep.append(version)
    for version, standing in standings.items():
        if version in wishes or standing.state is ModelState.LEAVING:
            continue
        if standing.state in (ModelState.READY, ModelState.DRAINING):
            if may_leave(plan, core, version):
                changes.leave.append(version)
            elif standing.state is ModelState.READY:
                changes.drain.append(version)
        elif standing.state in (ModelState.LAZY, ModelState.FAILED):
            changes.forget.append(version)
    return changes


def wanted(plan: Plan, core: str, own: Sequence[str]) -> dict[str, Wish]:
    """The versions wanted on a core, those of its settings first."""
    wishes = {}
    for version in dict.fromkeys((*own, *sorted(plan.placements))):
        placement = plan.placements.get(version, UNPLACED)
        if is_wanted(placement, version, core, plan.living, is_own=version in own):
            wishes[version] = Wish(version, placement.since_ms, placement.lazy, placement.manifest)
    return wishes


def may_leave(plan: Plan, core: str, version: str) -> bool:
    """Whether a version that is not wanted here may go: no job of it is open, or a core that is to keep it holds it."""
    placement: Placement = plan.placements.get(version, UNPLACED)
    if placement.force or plan.open_jobs.get(version, 0) <= 0:
        return True
    return any(other != core and placement.allows(other) for other in plan.holders.get(version, ()))


def is_settled(plan: Plan, standings: Mapping[str, Standing]) -> bool:
    """Whether nothing changes until somebody changes a placement; else the plan is looked at with every heartbeat."""
    unsettled = (ModelState.LAZY, ModelState.LOADING, ModelState.LOADED, ModelState.DRAINING, ModelState.LEAVING)
    depends_on_others = any(placement.count for placement in plan.placements.values())
    return not depends_on_others and not any(standing.state in unsettled for standing in standings.values())
