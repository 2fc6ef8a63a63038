"""Plans: where versions are wanted, as a worker reads it, and the worker's notes on the models it loads.

Each thread needs an object of its own, which has its own connection. Every call may be repeated.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.domain.placement import Placement
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.link import Lease, pairs

#: The note on a load that ended its process is deleted after this time, in seconds.
LOADING_TTL_S = 600

#: The lease for replacing a core's process. One core at a time holds it, and should be ready before it lapses.
RESTARTING = Lease(keys.RESTARTING, ttl_ms=60_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """All placements; and the holders and open jobs of each version that is placed or was asked about."""

    placements: Mapping[str, Placement] = field(default_factory=dict)
    holders: Mapping[str, Collection[str]] = field(default_factory=dict)
    open_jobs: Mapping[str, int] = field(default_factory=dict)


class Plans:
    """Reads the plan, and keeps a core's notes."""

    def __init__(self, settings: Settings, core: str, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._core = core
        self._bell = bell
        self._link = Link(settings.redis_url)

    def read(self, held: Sequence[str]) -> Plan:
        """Read the plan, and the state of the versions that are placed or ``held``."""
        now = self._link.now_ms()
        raw = self._link("HGETALL", keys.PLACEMENTS)
        placements = {version.decode(): Placement.model_validate_json(text) for version, text in pairs(raw)}
        versions = sorted({*placements, *held})
        if not versions:
            return Plan()
        jobs, *sets = self._link.many(
            [
                ("HMGET", keys.JOB_COUNTS, *versions),
                *(("ZRANGEBYSCORE", keys.holders(version), now, "+inf") for version in versions),
            ]
        )
        return Plan(
            placements,
            {v: {name.decode() for name in cores} for v, cores in zip(versions, sets, strict=True)},
            {v: int(count or 0) for v, count in zip(versions, jobs, strict=True)},
        )

    def named(self, alias: str) -> str | None:
        """Return the version that an alias means by the workers' settings; None if no worker has announced one yet."""
        version = self._link("HGET", keys.NAMED, alias)
        return None if version is None else str(version.decode())

    def open_jobs(self, versions: Sequence[str]) -> list[int]:
        """Return the number of open jobs of each version."""
        return [int(count or 0) for count in self._link("HMGET", keys.JOB_COUNTS, *versions)]

    def announce(self, version: str, summary: Mapping[str, Any], aliases: Sequence[str]) -> None:
        """Make a version known, and let aliases mean it, except those that were set through the API."""
        self._link.run("announce", orjson.dumps(summary), version=version, aliases=aliases)

    def begin_load(self, version: str, since_ms: int) -> int:
        """Note that a load begins; return how many earlier loads of the version ended the process."""
        key = keys.loading(self._core)
        begin = ("HINCRBY", key, f"{version}#{since_ms}", 1)
        begun, _ = self._link.run("write", commands=[begin, ("EXPIRE", key, LOADING_TTL_S)])
        return int(begun) - 1

    def end_load(self, version: str, since_ms: int) -> None:
        """Note that a load ended, whether it succeeded or not."""
        self._link("HDEL", keys.loading(self._core), f"{version}#{since_ms}")

    def take_restart_turn(self) -> bool:
        """Take the lease for replacing this core's process; return whether this core has it."""
        return bool(self._link(*RESTARTING.take(self._core)))

    def end_restart_turn(self) -> None:
        """Release the lease, so that the next core's process can be replaced."""
        self._link(*RESTARTING.release(self._core))

    def release(self, version: str) -> None:
        """Stop claiming for a version, and ring other cores for its waiting work."""
        self._link.run("release", core=self._core, envelope=self._bell, version=version)

    def ring(self) -> None:
        """Ring this core, so that its drain sees a change. A core that is working is not rung."""
        self._link.run("ring", core=self._core, envelope=self._bell)

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        self._link.close()
