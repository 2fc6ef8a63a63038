"""What a core changes about the models it holds, given what is wanted of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from corelane.domain.placement import UNPLACED, Scope, counted, is_wanted
from corelane.store.plans import Plan


class ModelState(StrEnum):
    """How far a core is with a version."""

    LAZY = "lazy"
    WAITING = "waiting"
    LOADING = "loading"
    LOADED = "loaded"
    READY = "ready"
    RELOADING = "reloading"
    RELOADED = "reloaded"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"


#: States in which a core claims work for a version.
CLAIMING = (ModelState.READY, ModelState.RELOADING, ModelState.DRAINING)

#: States in which it answers for a version: what is loaded anew is taken up once what was claimed before is done.
SERVING = (*CLAIMING, ModelState.RELOADED)

#: States that change by themselves, or with what others do.
UNSETTLED = tuple(state for state in ModelState if state not in (ModelState.READY, ModelState.FAILED))


@dataclass(frozen=True, slots=True)
class Wish:
    """A version wanted here: since when, whether only on first use, the manifest it must have, and when it was last
    asked to be loaded anew.
    """

    version: str
    since_ms: int = 0
    lazy: bool = False
    manifest: str = ""
    reload_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How a core stands with a version: its state, of which wish, and the manifest of what is loaded."""

    state: ModelState
    since_ms: int = 0
    reload_ms: int = 0
    manifest: str = ""


@dataclass(slots=True)
class Changes:
    """Versions to load now, to load on first use, to load anew beside what serves, to go on with, to drain, to leave
    between batches, to forget.
    """

    load: list[Wish] = field(default_factory=list)
    lazy: list[Wish] = field(default_factory=list)
    reload: list[Wish] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    drain: list[str] = field(default_factory=list)
    leave: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)


def decide(plan: Plan, core: str, own: Sequence[str], standings: Mapping[str, Standing]) -> Changes:
    """What to do now, so that the core comes to hold what is wanted of it.

    ``own`` are the versions that the core's settings name. Nothing is left that only this core can still answer, unless
    that was forced.
    """
    wishes = wanted(plan, core, own, standings)
    changes = Changes()
    for version, wish in wishes.items():
        _come(changes, wish, standings.get(version), waits=plan.waiting.get(version, 0) > 0)
    for version, standing in standings.items():
        if version not in wishes:
            _go(changes, plan, core, version, standing)
    return changes


def _come(changes: Changes, wish: Wish, standing: Standing | None, *, waits: bool) -> None:
    """Add what brings a version nearer to what is wished."""
    if standing is None or (standing.state is ModelState.FAILED and wish.since_ms > standing.since_ms):
        (changes.lazy if wish.lazy and not waits else changes.load).append(wish)
        return
    match standing.state:
        case ModelState.LAZY if waits or not wish.lazy:
            changes.load.append(wish)
        case ModelState.WAITING if wish.since_ms > standing.since_ms:
            changes.load.append(wish)
        case ModelState.READY if is_outdated(standing, wish):
            changes.reload.append(wish)
        case ModelState.DRAINING:
            changes.keep.append(wish.version)


def _go(changes: Changes, plan: Plan, core: str, version: str, standing: Standing) -> None:
    """Add what brings a version that is not wanted nearer to its end."""
    match standing.state:
        case ModelState.READY | ModelState.DRAINING:
            if may_leave(plan, core, version):
                changes.leave.append(version)
            elif standing.state is ModelState.READY:
                changes.drain.append(version)
        case ModelState.RELOADING:
            changes.keep.append(version)
        case ModelState.LAZY | ModelState.WAITING:
            changes.forget.append(version)
        case ModelState.FAILED if not has_lost_place(plan, core, version, standing):
            changes.forget.append(version)


def is_outdated(standing: Standing, wish: Wish) -> bool:
    """Whether what is loaded is not what is wished by now: another manifest, or anything loaded since."""
    other = bool(wish.manifest) and wish.manifest != standing.manifest
    return wish.reload_ms > standing.reload_ms or (other and wish.since_ms > standing.since_ms)


def has_lost_place(plan: Plan, core: str, version: str, standing: Standing) -> bool:
    """Whether a version failed here, and so another of so many cores is to hold it, until it is asked for again."""
    placement = plan.placements.get(version, UNPLACED)
    is_current = standing.state is ModelState.FAILED and standing.since_ms >= placement.since_ms
    return is_current and placement.scope is Scope.COUNT and placement.allows(core)


def wanted(plan: Plan, core: str, own: Sequence[str], standings: Mapping[str, Standing]) -> dict[str, Wish]:
    """The versions wanted on a core, those of its settings first."""
    wishes = {}
    for version in dict.fromkeys((*own, *sorted(plan.placements))):
        placement = plan.placements.get(version, UNPLACED)
        failed = set(plan.failed.get(version, ())) - {core}
        if version in standings and has_lost_place(plan, core, version, standings[version]):
            failed.add(core)
        if is_wanted(placement, version, core, plan.living, is_own=version in own, failed=failed):
            since, reload = placement.since_ms, placement.reload_ms(core)
            wishes[version] = Wish(version, since, placement.lazy, placement.manifest, reload)
    return wishes


def may_leave(plan: Plan, core: str, version: str) -> bool:
    """Whether a version that is not wanted here may go: no job of it is open, or a core that is to keep it holds it.

    Where another of so many cores is to hold it instead, only once all that are chosen do.
    """
    placement = plan.placements.get(version, UNPLACED)
    if placement.force:
        return True
    holders = plan.holders.get(version, ())
    if placement.scope is Scope.COUNT and placement.allows(core):
        return set(counted(placement, version, plan.living, plan.failed.get(version, ()))) <= set(holders)
    if plan.open_jobs.get(version, 0) <= 0:
        return True
    return any(other != core and placement.allows(other) for other in holders)


def is_settled(plan: Plan, standings: Mapping[str, Standing]) -> bool:
    """Whether nothing changes until somebody changes a placement; else the plan is looked at with every heartbeat."""
    depends_on_others = any(placement.count for placement in plan.placements.values())
    return not depends_on_others and not any(standing.state in UNSETTLED for standing in standings.values())
