"""The desired state of a core: which versions it should hold, and the next step towards that for each. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.placement import UNPLACED, PlacementScope, counted, is_wanted
from corelane.store.plans import Plan
from workers.models.life import UNSETTLED, ModelEvent, ModelState


@dataclass(frozen=True, slots=True)
class DesiredModel:
    """A version wanted on this core since ``since_ms``. If ``lazy``, it is loaded on first use.

    ``manifest`` is the digest it must have, empty for any. ``reload_ms`` is when a reload was last asked for.
    """

    version: str
    since_ms: int = 0
    lazy: bool = False
    manifest: str = ""
    reload_ms: int = 0


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The state of a version on a core, where it is wanted since ``since_ms``.

    ``reload_ms`` is when its last reload was asked for, ``manifest`` the digest of the manifest that is loaded.
    """

    state: ModelState
    since_ms: int = 0
    reload_ms: int = 0
    manifest: str = ""


#: An event that brings a version nearer to its desired state, and the desired version.
Step = tuple[ModelEvent, DesiredModel]


def decide(plan: Plan, core: str, own: Sequence[str], held: Mapping[str, VersionStatus]) -> list[Step]:
    """Decide the next steps, in order, so that the core comes to hold the versions that it should.

    ``own`` are the versions in the core's settings. A version that only this core can still serve stays, unless its
    removal was forced.
    """
    desired_models = wanted(plan, core, own, held)
    steps = [(_approach(desired, held.get(version), plan), desired) for version, desired in desired_models.items()]
    steps += [
        (_part(plan, core, version, status), DesiredModel(version))
        for version, status in held.items()
        if version not in desired_models
    ]
    return [(event, desired) for event, desired in steps if event is not None]


def _approach(desired: DesiredModel, status: VersionStatus | None, plan: Plan) -> ModelEvent | None:
    """Return the event that brings a wanted version nearer."""
    has_work = plan.waiting.get(desired.version, 0) > 0
    first = ModelEvent.OFFER if desired.lazy and not has_work else ModelEvent.ASK
    match status:
        case None:
            return first
        case VersionStatus(ModelState.FAILED, since_ms) if desired.since_ms > since_ms:
            return first
        case VersionStatus(ModelState.LAZY) if first is ModelEvent.ASK:
            return ModelEvent.ASK
        case VersionStatus(ModelState.WAITING, since_ms) if desired.since_ms > since_ms:
            return ModelEvent.ASK
        case VersionStatus(ModelState.READY) if is_outdated(status, desired):
            return ModelEvent.RELOAD
        case VersionStatus(ModelState.DRAINING):
            return ModelEvent.KEEP
    return None


def _part(plan: Plan, core: str, version: str, status: VersionStatus) -> ModelEvent | None:
    """Return the event that brings an unwanted version nearer to its removal."""
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


def is_outdated(status: VersionStatus, desired: DesiredModel) -> bool:
    """Return whether a loaded version must be loaded again: a later reload or another manifest was asked for."""
    other = bool(desired.manifest) and desired.manifest != status.manifest
    return desired.reload_ms > status.reload_ms or (other and desired.since_ms > status.since_ms)


def has_lost_place(plan: Plan, core: str, version: str, status: VersionStatus) -> bool:
    """Return whether a version placed on a number of cores failed here, so that another core holds it now."""
    placement = plan.placements.get(version, UNPLACED)
    is_current = status.state is ModelState.FAILED and status.since_ms >= placement.since_ms
    return is_current and placement.scope is PlacementScope.COUNT and placement.allows(core)


def wanted(plan: Plan, core: str, own: Sequence[str], held: Mapping[str, VersionStatus]) -> dict[str, DesiredModel]:
    """Return the versions wanted on a core, those of its settings first."""
    desired_models = {}
    for version in dict.fromkeys((*own, *sorted(plan.placements))):
        placement = plan.placements.get(version, UNPLACED)
        failed = set(plan.failed.get(version, ())) - {core}
        if version in held and has_lost_place(plan, core, version, held[version]):
            failed.add(core)
        if is_wanted(placement, version, core, plan.living, is_own=version in own, failed=failed):
            since, reload = placement.since_ms, placement.reload_ms(core)
            desired_models[version] = DesiredModel(version, since, placement.lazy, placement.manifest, reload)
    return desired_models


def may_leave(plan: Plan, core: str, version: str) -> bool:
    """Return whether an unwanted version may go: it has no open job, or another core holds and keeps it.

    If it is placed on a number of cores, all chosen cores must hold it first.
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
    """Return whether only a new placement can change what is held. If not, every heartbeat reads the plan."""
    depends_on_others = any(placement.count for placement in plan.placements.values())
    return not depends_on_others and not any(status.state in UNSETTLED for status in held.values())
