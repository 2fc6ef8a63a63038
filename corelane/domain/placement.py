"""Placement: where a model version should run. Pure.

A version without a placement runs where a worker's settings name its model. A placement overrides that: all cores, a
number of them, or none; always on ``cores``, and never on those ``without``. A number of cores is chosen by hashing
version and core, so every worker makes the same choice independently.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

#: The word for all cores.
ALL_CORES = "all"

#: A core that has been silent for longer than this loses its place to another, in seconds. It is longer than a restart.
PLACE_KEPT_S = 60

#: At most this many cores that failed to load a version are replaced by others: if more fail, the version is at fault.
MOST_REPLACED = 2


class PlacementScope(StrEnum):
    """The cores that a placement selects, before its exceptions."""

    SETTINGS = "settings"
    ALL = "all"
    COUNT = "count"
    NONE = "none"


class Placement(BaseModel):
    """The cores on which one version is wanted, and how it is loaded and unloaded there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    scope: PlacementScope = PlacementScope.SETTINGS
    count: int = Field(0, ge=0, description="Cores, with scope `count`.")
    cores: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    lazy: bool = Field(False, description="Loaded when a job first waits for it.")
    force: bool = Field(False, description="Unloaded at once, even if jobs wait for it.")
    manifest: str = Field("", description="SHA-256 that an artifact's manifest must have; any if empty.")
    since_ms: int = Field(0, description="When this was asked for; asking again tries again what failed.")
    reloads: Mapping[str, int] = Field({}, description="By core, or `all`: when loading it again was last asked for.")

    @property
    def is_nowhere(self) -> bool:
        """Return whether no core should hold the version."""
        return self.scope is PlacementScope.NONE and not self.cores

    def allows(self, core: str) -> bool:
        """Return whether a core may hold the version."""
        return core in self.cores or (self.scope is not PlacementScope.NONE and core not in self.without)

    def reload_ms(self, core: str) -> int:
        """Return when a core was last asked to load the version again; 0 if never."""
        return max(self.reloads.get(core, 0), self.reloads.get(ALL_CORES, 0))


#: The placement of a version that has none.
UNPLACED = Placement()


def is_wanted(
    placement: Placement,
    version: str,
    core: str,
    living: Collection[str],
    *,
    is_own: bool,
    failed: Collection[str] = (),
) -> bool:
    """Return whether a core should hold a version.

    ``is_own``: the core's settings name its model. ``failed``: the cores where it did not load.
    """
    if not placement.allows(core):
        return False
    if core in placement.cores or placement.scope is PlacementScope.ALL:
        return True
    if placement.scope is PlacementScope.COUNT:
        return core in counted(placement, version, {*living, core}, failed)
    return is_own


def counted(placement: Placement, version: str, living: Collection[str], failed: Collection[str]) -> list[str]:
    """Return the cores that are chosen by a placement on a number of cores."""
    candidates = set(living) - set(placement.without)
    replaced = chosen(version, candidates & set(failed), MOST_REPLACED)
    return chosen(version, candidates - set(replaced), placement.count)


def chosen(version: str, cores: Collection[str], count: int) -> list[str]:
    """Choose ``count`` of the cores; the choice is the same in every process."""
    return sorted(cores, key=lambda core: hashlib.sha256(f"{version} {core}".encode()).digest())[:count]


def load_places(core: str, living: Collection[str], share: float) -> int:
    """Return how many cores of a core's host may load at a time: a share of the living ones, at least one."""
    host = core.rpartition("/")[0]
    return max(1, int(share * sum(other.rpartition("/")[0] == host for other in {*living, core})))


def place(
    before: Placement, core: str, now_ms: int, *, count: int | None = None, lazy: bool = False, manifest: str = ""
) -> Placement:
    """Return the placement that adds ``core``, or ``all`` cores, or ``count`` of them."""
    how = {"lazy": lazy, "manifest": manifest, "since_ms": now_ms, "reloads": before.reloads}
    if core != ALL_CORES:
        cores = tuple(dict.fromkeys((*before.cores, core)))
        without = tuple(other for other in before.without if other != core)
        return Placement(scope=before.scope, count=before.count, cores=cores, without=without, **how)
    if count is not None:
        return Placement(scope=PlacementScope.COUNT, count=count, **how)
    return Placement(scope=PlacementScope.ALL, **how)


def reload(before: Placement, core: str, now_ms: int, *, manifest: str | None = None) -> Placement:
    """Return the placement that loads a version again where it is held, on ``core`` or on ``all``.

    ``manifest`` replaces the earlier one, if it is given.
    """
    reloads = {core: now_ms} if core == ALL_CORES else {**before.reloads, core: now_ms}
    changes = {"reloads": reloads, "since_ms": now_ms}
    return before.model_copy(update=changes if manifest is None else changes | {"manifest": manifest})


def displace(before: Placement, core: str, now_ms: int, *, force: bool = False) -> Placement:
    """Return the placement that removes ``core``, or ``all`` cores."""
    how = {"force": force, "since_ms": now_ms}
    if core == ALL_CORES:
        return Placement(scope=PlacementScope.NONE, **how)
    cores = tuple(other for other in before.cores if other != core)
    without = before.without if before.scope is PlacementScope.NONE else tuple(dict.fromkeys((*before.without, core)))
    return before.model_copy(update={"cores": cores, "without": without, **how})


#: States of a version on a core from which it does not come to serve by itself.
NOT_COMING = frozenset({"failed", "draining", "leaving"})

#: States of a core in which its models are not known yet.
UNSETTLED_CORES = frozenset({"starting", "waiting", "restarting"})


@dataclass(frozen=True, slots=True)
class CoreSight:
    """The known state of a core: while it lives, its state and the states of its versions; and why versions failed."""

    name: str
    silent_s: float
    state: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether some core is expected to hold a version that no core holds now, and the reason."""

    is_expected: bool
    reason: str


def predict(version: str, placement: Placement, cores: Sequence[CoreSight]) -> Outlook:
    """Predict whether a core will hold a version that none holds now, without an operator's action.

    Some core will if it is loading the version or should, or if it held the version a minute ago: work is not refused
    because of an outage.
    """
    living = [core for core in cores if core.state is not None]
    for core in living:
        if core.versions.get(version, "failed") not in NOT_COMING:
            return Outlook(True, f"no core holds {version} yet: it is {core.versions[version]} on {core.name}")
    if not living:
        return Outlook(True, f"no core lives; {version} is answered once one that holds it is back")
    names = [core.name for core in living]
    for core in living:
        if core.state in UNSETTLED_CORES:
            return Outlook(True, f"no core holds {version} yet: {core.name} is {core.state}")
        if version not in core.versions and is_wanted(placement, version, core.name, names, is_own=False):
            return Outlook(True, f"no core holds {version} yet: it is wanted on {core.name}")
    for core in cores:
        if core.state is None and core.silent_s < PLACE_KEPT_S:
            return Outlook(True, f"no core holds {version} now: {core.name} was there {core.silent_s:.0f} s ago")
    failed = [core.reasons[version] for core in living if version in core.reasons]
    why = f" ({failed[0]})" if failed else ""
    return Outlook(False, f"no core holds {version}, and none is about to{why}")
