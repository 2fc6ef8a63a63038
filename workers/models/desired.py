"""The desired state of a core: which versions it should hold, and the next step towards that for each. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.placement import UNPLACED, is_wanted
from corelane.store.plans import Plan
from workers.models.life import UNSETTLED, ModelEvent, ModelState


@dataclass(frozen=True, slots=True)
class DesiredModel:
    """A version wanted on this core since ``since_ms``.

    ``manifest`` is the digest it must have, empty for any. ``reload_ms`` is when a reload was last asked for.
    """

    version: str
    since_ms: int = 0
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
    desired_models = wanted(plan, core, own)
    steps = [(_approach(desired, held.get(version)), desired) for version, desired in desired_models.items()]
    steps += [
        (_part(plan, core, version, status), DesiredModel(version))
        for version, status in held.items()
        if version not in desired_models
    ]
    return [(event, desired) for event, desired in steps if event is not None]


def _approach(desired: DesiredModel, status: VersionStatus | None) -> ModelEvent | None:
    """Return the event that brings a wanted version nearer to its desired state; None if there is none."""
    match status:
        case None:
            return ModelEvent.ASK
        case VersionStatus(ModelState.FAILED | ModelState.WAITING, since_ms) if desired.since_ms > since_ms:
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
        case ModelState.WAITING | ModelState.FAILED:
            return ModelEvent.FORGET
    return None


def is_outdated(status: VersionStatus, desired: DesiredModel) -> bool:
    """Return whether a loaded version must be loaded again: a later reload or another manifest was asked for."""
    other = bool(desired.manifest) and desired.manifest != status.manifest
    return desired.reload_ms > status.reload_ms or (other and desired.since_ms > status.since_ms)


def wanted(plan: Plan, core: str, own: Sequence[str]) -> dict[str, DesiredModel]:
    """Return the versions wanted on a core, those of its settings first."""
    desired_models = {}
    for version in dict.fromkeys((*own, *sorted(plan.placements))):
        placement = plan.placements.get(version, UNPLACED)
        if is_wanted(placement, core, is_own=version in own):
            since, reload = placement.since_ms, placement.reload_ms(core)
            desired_models[version] = DesiredModel(version, since, placement.manifest, reload)
    return desired_models


def may_leave(plan: Plan, core: str, version: str) -> bool:
    """Return whether an unwanted version may go: it has no open job, or another core holds and keeps it."""
    placement = plan.placements.get(version, UNPLACED)
    if placement.force:
        return True
    if plan.open_jobs.get(version, 0) <= 0:
        return True
    return any(other != core and placement.allows(other) for other in plan.holders.get(version, ()))


def is_settled(held: Mapping[str, VersionStatus]) -> bool:
    """Return whether only a new placement can change what is held. If not, every heartbeat reads the plan."""
    return not any(status.state in UNSETTLED for status in held.values())
