"""Where a model version is wanted: the rules of placement, pure.

A version without a placement is wanted where a worker's settings name its model. With one, the placement decides: on
all cores, on so many of them, on named ones, or nowhere; on ``cores`` besides, and never on those ``without``. So many
cores are chosen by hashing version and core: every worker comes to the same choice by itself, and when a core dies or
joins, at most one other changes.
"""

import hashlib
from collections.abc import Collection
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

#: The word that stands for every core.
ALL_CORES = "all"

#: A core that has been silent for longer than this gives its place to another, in seconds: longer than a restart.
PLACE_KEPT_S = 60


class Scope(StrEnum):
    """Which cores a placement means before its exceptions."""

    SETTINGS = "settings"
    ALL = "all"
    COUNT = "count"
    NONE = "none"


class Placement(BaseModel):
    """Where one version is wanted, and how it comes and goes there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    scope: Scope = Scope.SETTINGS
    count: int = Field(0, ge=0, description="Cores, with scope `count`.")
    cores: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    lazy: bool = Field(False, description="Loaded when work first waits for it.")
    force: bool = Field(False, description="Left at once, whatever waits for it.")
    manifest: str = Field("", description="SHA-256 that an artifact's manifest must have; any if empty.")
    since_ms: int = Field(0, description="When this was asked for; asking again tries again what failed.")

    @property
    def is_nowhere(self) -> bool:
        """Whether no core is to hold the version."""
        return self.scope is Scope.NONE and not self.cores

    def allows(self, core: str) -> bool:
        """Whether a core may be among those that hold it, as far as the placement alone says."""
        return core in self.cores or (self.scope is not Scope.NONE and core not in self.without)


#: A version nobody has placed.
UNPLACED = Placement()


def is_wanted(placement: Placement, version: str, core: str, living: Collection[str], *, is_own: bool) -> bool:
    """Whether a core is to hold a version; ``is_own`` says that the core's settings name its model."""
    if not placement.allows(core):
        return False
    if core in placement.cores or placement.scope is Scope.ALL:
        return True
    if placement.scope is Scope.COUNT:
        return core in chosen(version, {*living, core} - set(placement.without), placement.count)
    return is_own


def chosen(version: str, cores: Collection[str], count: int) -> list[str]:
    """So many of the cores, the same for whoever asks."""
    return sorted(cores, key=lambda core: hashlib.sha256(f"{version} {core}".encode()).digest())[:count]


def place(
    before: Placement, core: str, now_ms: int, *, count: int | None = None, lazy: bool = False, manifest: str = ""
) -> Placement:
    """The placement once a version is wanted on ``core``, which may be ``all``, then on ``count`` cores if given."""
    how = {"lazy": lazy, "manifest": manifest, "since_ms": now_ms}
    if core != ALL_CORES:
        cores = tuple(dict.fromkeys((*before.cores, core)))
        without = tuple(other for other in before.without if other != core)
        return Placement(scope=before.scope, count=before.count, cores=cores, without=without, **how)
    if count is not None:
        return Placement(scope=Scope.COUNT, count=count, **how)
    return Placement(scope=Scope.ALL, **how)


def displace(before: Placement, core: str, now_ms: int, *, force: bool = False) -> Placement:
    """The placement once a version is no longer wanted on ``core``, or on ``all``."""
    how = {"force": force, "since_ms": now_ms}
    if core == ALL_CORES:
        return Placement(scope=Scope.NONE, **how)
    cores = tuple(other for other in before.cores if other != core)
    without = before.without if before.scope is Scope.NONE else tuple(dict.fromkeys((*before.without, core)))
    return before.model_copy(update={"cores": cores, "without": without, **how})
