"""The desired state of a core: which versions it should hold, and the next step towards it for each. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.placement import UNPLACED, PlacementScope, counted, is_wanted
from corelane.store.plans import Plan
from workers.models.life import UNSETTLED, ModelEvent, ModelState


@dataclass(frozen=True, slots=True)
class Wish:
    """A version wanted here: since when, whether only on first use, the manifest it must have, and when it was last
    asked to be loaded again.
    """

    version: str
    since_ms: int = 0
    lazy: bool = False
    manifest: str = ""
    reload_ms: int = 0


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The state of a version on a core: its model state, the times of the wish behind it, the manifest of what is loaded."""

    state: ModelState
    since_ms: int = 0
    reload_ms: int = 0
    manifest: str = ""


#: An event that brings a version nearer to its desired state, and the version as it is wished.
Step = tuple[ModelEvent, Wish]


def decide(plan: Plan, core: str, own: Sequence[str], held: Mapping[str, VersionStatus]) -> list[Step]:
    """Decide what to do now, so that the core comes to hold the versions wanted of it, in that order.

    ``own`` are the versions that the core's settings name. A version that only this core can still answer stays, unless
    its removal was forced.
    """
    wishes = wanted(plan, core, own, held)
    steps = [(_approach(wish, held.get(version), plan), wish) for version, wish in wishes.items()]
    steps += [
        (_part(plan, core, version, status), Wish(version))
        for version, status in held.items()
        if version not in wishes
    ]
    return [(event, wish) for event, wish in steps if event is not None]


def _approach(wish: Wish, status: VersionStatus | None, plan: Plan) -> ModelEvent | None:
    """Return the event that brings a wanted version nearer."""
    has_work = plan.waiting.get(wish.version, 0) > 0
    first = ModelEvent.OFFER if wish.lazy and not has_work else ModelEvent.ASK
    match status:
        case None:
            return first
        case VersionStatus(ModelState.FAILED, since_ms) if wish.since_ms > since_ms:
            return first
        case VersionStatus(ModelState.LAZY) if first is ModelEvent.ASK:
            return ModelEvent.ASK
        case VersionStatus(ModelState.WAITING, since_ms) if wish.since_ms > since_ms:
            return ModelEvent.ASK
        case VersionStatus(ModelState.READY) if is_outdated(status, wish):
            return ModelEvent.RELOAD
        case VersionStatus(ModelState.DRAINING):
            return ModelEvent.KEEP
    return None


def _part(plan: Plan, core: str, version: str, status: VersionStatus) -> ModelEvent | None:
    """Return the event that brings a version that is not wanted nearer to its end."""
    match status.state:
        case ModelState.READY | ModelState.DRAINING if may_leave(plan, core, version):
            return ModelEvent.LEAVE
        case ModelState.READY:
            return ModelEvent.DRAIN
        case ModelState.RELOADING:
            return ModelEvent.KEEP
        case ModelState.LAZY | ModelState.WAITING:
            return ModelEvent.FORGET
        case ModelState.FAILED if not has_lost_place(plan, core, version, status):
            return ModelEvent.FORGET
    return None


def is_outdated(status: VersionStatus, wish: Wish) -> bool:
    """Return whether a loaded version has to be loaded again: a reload was asked for since, or another manifest."""
    other = bool(wish.manifest) and wish.manifest != status.manifest
    return wish.reload_ms > status.reload_ms or (other and wish.since_ms > status.since_ms)


def has_lost_place(plan: Plan, core: str, version: str, status: VersionStatus) -> bool:
    """Return whether a version placed on a number of cores failed here: another core holds it until it is asked for again."""
    placement = plan.placements.get(version, UNPLACED)
    is_current = status.state is ModelState.FAILED and status.since_ms >= placement.since_ms
    return is_current and placement.scope is PlacementScope.COUNT and placement.allows(core)


def wanted(plan: Plan, core: str, own: Sequence[str], held: Mapping[str, VersionStatus]) -> dict[str, Wish]:
    """Return the versions wanted on a core, those of its settings first."""
    wishes = {}
    for version in dict.fromkeys((*own, *sorted(plan.placements))):
        placement = plan.placements.get(version, UNPLACED)
        failed = set(plan.failed.get(version, ())) - {core}
        if version in held and has_lost_place(plan, core, version, held[version]):
            failed.add(core)
        if is_wanted(placement, version, core, plan.living, is_own=version in own, failed=failed):
            since, reload = placement.since_ms, placement.reload_ms(core)
            wishes[version] = Wish(version, since, placement.lazy, placement.manifest, reload)
    return wishes


def may_leave(plan: Plan, core: str, version: str) -> bool:
    """Return whether an unwanted version may go: none of its jobs is open, or another core that keeps it holds it.

    With a placement on a number of cores, only once all chosen cores hold it.
    """
    placement = plan.placements.get(version, UNPLACED)
    if placement.force:
        return True
    holders = plan.holders.get(version, ())
    if placement.scope is PlacementScope.COUNT and placement.allows(core):
        return set(counted(placement, version, plan.living, plan.failed.get(version, ()))) <= set(holders)
    if plan.open_jobs.get(version, 0) <= 0:
        return True
    return any(other != core and placement.allows(other) for other in holders)


def is_settled(plan: Plan, held: Mapping[str, VersionStatus]) -> bool:
    """Return whether nothing changes until a placement does; otherwise every heartbeat reads the plan."""
    depends_on_others = any(placement.count for placement in plan.placements.values())
    return not depends_on_others and not any(status.state in UNSETTLED for status in held.values())
