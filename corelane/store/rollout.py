"""Rollout: what operators change. Where versions are wanted, and what aliases mean.

Only the desired state is written here, each change in one step; the workers act on it between batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from corelane.domain.aliases import Weights, decode_weights, encode_weights
from corelane.domain.placement import ALL_CORES, UNPLACED, Placement, displace, place, reload
from corelane.errors import NotFound, StoreUnavailable, UnknownModel, VersionInUse, VersionNotReady
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs

#: Kinds of marks in the history of the console: a deployment, a moved alias, a version that is wanted or no longer
#: wanted, a core out of service or back, a new calibration, a pause.
MarkKind = Literal["deploy", "alias", "load", "unload", "core", "calibration", "pause"]

#: How often a change of a placement is tried while others change it at the same time.
PLACE_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """An alias, the versions it means with their weights, and whether it was set through the API."""

    alias: str
    weights: dict[str, float]
    is_set: bool


class Rollout:
    """Changes placements and aliases."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def load(self, version: str, core: str, *, manifest: str = "") -> Placement:
        """Request a version on a core or on ``all``. A second call makes cores that failed try again."""
        now = await self._link.now_ms()
        return await self._place(
            version,
            lambda before: place(before, core, now, manifest=manifest),
            force=False,
            mark=("load", f"{version} is wanted on {core}"),
        )

    async def reload(self, version: str, core: str, *, manifest: str | None = None) -> Placement:
        """Request that a version is loaded again where it is held, on a core or on ``all``.

        Raise UnknownModel, or VersionInUse if it is being unloaded.
        """
        now = await self._link.now_ms()
        known, closed = await self._link.many([("HEXISTS", keys.MODELS, version), ("HEXISTS", keys.CLOSED, version)])
        if not known:
            raise UnknownModel(f"there is no version {version[:120]!r}; GET /v1/models lists them")
        if closed:
            raise VersionInUse(f"{version} is being unloaded; load it instead")
        return await self._place(
            version,
            lambda before: reload(before, core, now, manifest=manifest),
            force=False,
            mark=("load", f"{version} is loaded again on {core}"),
        )

    async def unload(self, version: str, core: str, *, force: bool = False) -> Placement:
        """Request that a version leaves a core, or ``all`` cores; raise UnknownModel, or VersionInUse unless forced."""
        now = await self._link.now_ms()
        known, placed, holders, jobs = await self._link.many(
            [
                ("HEXISTS", keys.MODELS, version),
                ("HEXISTS", keys.PLACEMENTS, version),
                ("ZRANGEBYSCORE", keys.holders(version), now, "+inf"),
                ("HGET", keys.JOB_COUNTS, version),
            ]
        )
        if not (known or placed):
            raise UnknownModel(f"there is no version {version[:120]!r}; GET /v1/models lists them")
        if core != ALL_CORES and [holder.decode() for holder in holders] == [core] and not force:
            raise VersionInUse(
                f"{core} is the only core that holds {version} ({int(jobs or 0)} unfinished jobs); load it elsewhere "
                "first, unload it from `all`, or give `force=true`"
            )
        return await self._place(
            version,
            lambda before: displace(before, core, now, force=force),
            force=force,
            mark=("unload", f"{version} is no longer wanted on {core}"),
        )

    async def aliases(self) -> list[AliasRecord]:
        """Return every alias, by name."""
        means, pinned = await self._link.many([("HGETALL", keys.ALIASES), ("SMEMBERS", keys.PINNED)])
        return [
            AliasRecord(alias.decode(), decode_weights(text.decode()), alias in pinned)
            for alias, text in sorted(pairs(means))
        ]

    async def set_alias(self, alias: str, weights: Weights, *, force: bool = False) -> None:
        """Let an alias mean versions by weight; raise UnknownModel, VersionInUse or VersionNotReady."""
        versions = [version for version, weight in weights.items() if weight > 0]
        reply = await self._link.run(
            "set_alias", alias=alias, weights=encode_weights(weights), force=force, versions=versions
        )
        reason, *rest = (part.decode() for part in reply)
        if reason == "unknown":
            raise UnknownModel(
                f"there is no version {rest[0][:120]!r}; GET /v1/models lists them, loading makes one known"
            )
        if reason == "closed":
            raise VersionInUse(f"{rest[0]} is being unloaded; load it again before an alias means it")
        if reason == "not_held":
            raise VersionNotReady(
                f"no living core holds {rest[0]} yet; GET /v1/cores says how far they are, `force` moves the alias now"
            )

    async def unset_alias(self, alias: str) -> dict[str, float]:
        """Delete an alias set by the API; return its weights by the settings. Raise NotFound or VersionInUse."""
        reason, *rest = (part.decode() for part in await self._link.run("unset_alias", alias=alias))
        if reason == "unset":
            raise NotFound(f"no alias {alias[:120]!r} was set; those of the workers' settings cannot be deleted")
        if reason == "closed":
            raise VersionInUse(f"{alias} would mean {rest[0]} again, which is unloaded; load that, or set the alias")
        return decode_weights(rest[0]) if rest[0] else {}

    async def _place(
        self, version: str, change: Callable[[Placement], Placement], *, force: bool, mark: tuple[MarkKind, str]
    ) -> Placement:
        """Change the placement, and mark that in the history; try again if it was changed meanwhile."""
        for _ in range(PLACE_ATTEMPTS):
            before = (await self._link("HGET", keys.PLACEMENTS, version) or b"").decode()
            after = change(Placement.model_validate_json(before) if before else UNPLACED)
            reply = await self._link.run(
                "set_placement",
                version=version,
                before=before,
                after=after.model_dump_json(),
                closes=after.is_nowhere,
                force=force,
                mark=mark,
            )
            reason, *aliases = (part.decode() for part in reply)
            if reason == "done":
                return after
            if reason == "in_use":
                raise VersionInUse(
                    f"{version} is what {', '.join(map(repr, sorted(aliases)))} means; move the alias first "
                    "(PUT /v1/aliases/NAME), or give `force=true`"
                )
        raise StoreUnavailable(f"the placement of {version} is being changed by too many at once; try again")
