"""Placement: where a model version should run. Pure.

A version without a placement runs where a worker's settings name its model. A placement overrides that: all cores or
none; always on ``cores``, and never on those ``without``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

#: The word for all cores.
ALL_CORES = "all"

#: A core that has been silent for longer than this is not expected back, in seconds. It is longer than a restart.
PLACE_KEPT_S = 60


class PlacementScope(StrEnum):
    """The cores that a placement selects, before its exceptions."""

    SETTINGS = "settings"
    ALL = "all"
    NONE = "none"


class Placement(BaseModel):
    """The cores on which one version is wanted, and how it is loaded and unloaded there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    scope: PlacementScope = PlacementScope.SETTINGS
    cores: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
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


def is_wanted(placement: Placement, core: str, *, is_own: bool) -> bool:
    """Return whether a core should hold a version; ``is_own``: the core's settings name its model."""
    if not placement.allows(core):
        return False
    return is_own or core in placement.cores or placement.scope is PlacementScope.ALL


def place(before: Placement, core: str, now_ms: int, *, manifest: str = "") -> Placement:
    """Return the placement that adds ``core``, or ``all`` cores."""
    how = {"manifest": manifest, "since_ms": now_ms, "reloads": before.reloads}
    if core != ALL_CORES:
        cores = tuple(dict.fromkeys((*before.cores, core)))
        without = tuple(other for other in before.without if other != core)
        return Placement(scope=before.scope, cores=cores, without=without, **how)
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


#: States of a version on a core that do not lead to its serving without an operator.
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

    A core will if it is loading the version or should load it, or if it lived a minute ago: an outage is no reason to
    refuse work.
    """
    living = [core for core in cores if core.state is not None]
    for core in living:
        if core.versions.get(version, "failed") not in NOT_COMING:
            return Outlook(True, f"no core holds {version} yet: it is {core.versions[version]} on {core.name}")
    if not living:
        return Outlook(True, f"no core lives; {version} is answered once one that holds it is back")
    for core in living:
        if core.state in UNSETTLED_CORES:
            return Outlook(True, f"no core holds {version} yet: {core.name} is {core.state}")
        if version not in core.versions and is_wanted(placement, core.name, is_own=False):
            return Outlook(True, f"no core holds {version} yet: it is wanted on {core.name}")
    for core in cores:
        if core.state is None and core.silent_s < PLACE_KEPT_S:
            return Outlook(True, f"no core holds {version} now: {core.name} was there {core.silent_s:.0f} s ago")
    failed = [core.reasons[version] for core in living if version in core.reasons]
    why = f" ({failed[0]})" if failed else ""
    return Outlook(False, f"no core holds {version}, and none is about to{why}")
