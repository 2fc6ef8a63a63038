"""Plans: a worker's view of what is wanted of its core, and its notes on models it loads.

Each thread that uses one has its own, on a connection of its own. Every call may be repeated.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.domain.placement import PLACE_KEPT_S, Placement, Scope
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.lease import Lease
from corelane.store.link.surface import pairs

#: Loads that ended their process are forgotten after this time, in seconds.
LOADING_TTL_S = 600

#: The core whose process is being replaced; it has so long to be ready again before others go on, in seconds.
RESTARTING = Lease(keys.RESTARTING, ttl_ms=60_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where versions are wanted, the cores in service, and of each version asked about who holds it, the tokens that
    wait for it and its jobs that are not final; of those wanted on so many cores, where they did not load.
    """

    placements: Mapping[str, Placement] = field(default_factory=dict)
    living: Collection[str] = ()
    holders: Mapping[str, Collection[str]] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    open_jobs: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, Collection[str]] = field(default_factory=dict)


class Plans:
    """Reads the plan, and keeps a core's own notes."""

    def __init__(self, settings: Settings, core: str, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._core = core
        self._host = core.rpartition("/")[0]
        self._bell = bell
        self._lease_ms = int(settings.lease_s * 1000)
        self._link = Link(settings.redis_url)

    def read(self, held: Sequence[str], failed: Collection[str] = ()) -> Plan:
        """The plan as it stands, with what there is to know of the versions placed and those ``held``.

        Of those that ``failed`` here and are wanted on so many cores, the others are told for as long as a lease.
        """
        now = self._link.now_ms()
        kept_since = now - PLACE_KEPT_S * 1000
        raw, cores, out = self._link.many(
            [
                ("HGETALL", keys.PLACEMENTS),
                ("ZRANGEBYSCORE", keys.CORES, kept_since, "+inf"),
                ("SMEMBERS", keys.OUT_OF_SERVICE),
            ]
        )
        living = _names(cores) - _names(out)
        placements = {version.decode(): Placement.model_validate_json(text) for version, text in pairs(raw)}
        versions = sorted({*placements, *held})
        if not versions:
            return Plan(living=living)
        counted = [version for version, placement in placements.items() if placement.scope is Scope.COUNT]
        self._tell_failed([version for version in counted if version in failed], now)
        waiting, jobs, *sets = self._link.many(
            [
                ("HMGET", keys.WAITING, *versions),
                ("HMGET", keys.JOB_COUNTS, *versions),
                *(("ZRANGEBYSCORE", keys.holders(version), now, "+inf") for version in versions),
                *(("ZRANGEBYSCORE", keys.failed(version), now, "+inf") for version in counted),
            ]
        )
        return Plan(
            placements,
            living,
            {v: _names(cores) for v, cores in zip(versions, sets, strict=False)},
            {v: int(tokens or 0) for v, tokens in zip(versions, waiting, strict=True)},
            {v: int(count or 0) for v, count in zip(versions, jobs, strict=True)},
            {v: _names(cores) for v, cores in zip(counted, sets[len(versions) :], strict=True)},
        )

    def _tell_failed(self, versions: Sequence[str], now_ms: int) -> None:
        for key in (keys.failed(version) for version in versions):
            until = now_ms + self._lease_ms
            self._link.many([("ZADD", key, until, self._core), ("PEXPIREAT", key, until)])

    def named(self, alias: str) -> str | None:
        """The version that settings of the fleet's workers meant by a name so far."""
        version = self._link("HGET", keys.NAMED, alias)
        return None if version is None else str(version.decode())

    def announce(self, version: str, summary: Mapping[str, Any], aliases: Sequence[str]) -> None:
        """Make a version known, and aliases mean it, but for those that were set through the API."""
        self._link.run("announce", orjson.dumps(summary), version=version, aliases=aliases)

    def begin_load(self, version: str, since_ms: int) -> int:
        """Note that a load begins; how many such loads ended the process before they ended themselves."""
        key = keys.loading(self._core)
        begun, _ = self._link.many([("HINCRBY", key, f"{version}#{since_ms}", 1), ("EXPIRE", key, LOADING_TTL_S)])
        return int(begun) - 1

    def end_load(self, version: str, since_ms: int) -> None:
        """Note that it ended, well or not."""
        self._link("HDEL", keys.loading(self._core), f"{version}#{since_ms}")

    def take_restart_turn(self) -> bool:
        """Whether this core's process may be replaced now: one of the fleet at a time, the others serve meanwhile."""
        return bool(self._link(*RESTARTING.take(self._core)))

    def end_restart_turn(self) -> None:
        """Let the next one be replaced, if it was this core's turn."""
        self._link(*RESTARTING.release(self._core))

    def take_load_turn(self, places: int) -> bool:
        """Whether this core may load while it serves: so many of its host at a time. Held for as long as a lease; to
        ask again renews it.
        """
        turn = {"core": self._core, "host": self._host, "places": places, "lease_ms": self._lease_ms}
        return bool(self._link.run("take_load_turn", **turn))

    def end_load_turn(self) -> None:
        """Let the next core of the host load."""
        self._link("ZREM", keys.loads(self._host), self._core)

    def release(self, version: str) -> None:
        """This core claims for a version no more; what waits is rung for elsewhere."""
        self._link.run("release", core=self._core, envelope=self._bell, version=version)

    def ring(self) -> None:
        """Have this core's drain look for what changed, if it is not at work anyway."""
        self._link.run("ring", core=self._core, envelope=self._bell)

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        self._link.close()


def _names(raw: Collection[bytes]) -> set[str]:
    return {name.decode() for name in raw}
