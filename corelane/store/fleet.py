"""The fleet: what cores announce of themselves, and how the API and operators read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.promises import Speed
from corelane.settings import Settings
from corelane.store.async_link import AsyncLink
from corelane.store.connections import Link, pairs

#: A core that has been silent for longer than this is no longer listed, in milliseconds (an hour).
FORGET_CORE_MS = 3_600_000

#: The name that stands for the model of the settings.
DEFAULT_ALIAS = "default"


class Announcer:
    """A core's heartbeat. It has a connection of its own, so that a blocking pop never delays it."""

    def __init__(self, settings: Settings, core: str) -> None:
        self._core = core
        self._lease_ms = int(settings.lease_s * 1000)
        self._link = Link(settings.redis_url)

    def beat(
        self, fields: Mapping[str, Any], versions: Sequence[str], leases: Sequence[str], speed: Speed | None = None
    ) -> None:
        """Renew the core, how fast it is, what it holds, and its leases."""
        flat = [part for pair in fields.items() for part in pair]
        head = (self._core, self._lease_ms, speed.encode() if speed else "", len(fields))
        self._link.run("beat", *head, *flat, len(versions), *versions, *leases)

    def publish_model(self, version: str, summary: Mapping[str, Any], aliases: Sequence[str]) -> None:
        """Make a version known, and move aliases to it."""
        commands: list[tuple[Any, ...]] = [("HSET", "cl:models", version, orjson.dumps(summary))]
        commands += [("HSET", "cl:aliases", alias, version) for alias in aliases]
        self._link.many(commands)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A version known to the fleet, the aliases that mean it, and the cores that hold it now."""

    version: str
    summary: dict[str, Any]
    aliases: list[str]
    cores: list[str]


class Fleet:
    """The API's view of cores and models."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def cores(self) -> list[dict[str, Any]]:
        """Every core heard of in the last hour: its heartbeat, or only name and last beat where it is lost."""
        now = await self._now_ms()
        beats = await self._link("ZRANGEBYSCORE", "cl:cores", now - FORGET_CORE_MS, "+inf", "WITHSCORES")
        names = sorted((name.decode(), int(at)) for name, at in pairs(beats))
        hashes = await self._link.many([("HGETALL", f"cl:core:{name}") for name, _ in names])
        return [
            {"core": name, "beat_ms": at, **{key.decode(): value.decode() for key, value in pairs(raw)}}
            for (name, at), raw in zip(names, hashes, strict=True)
        ]

    async def models(self) -> list[ModelRecord]:
        """Every version ever announced, by name."""
        now = await self._now_ms()
        models, aliases = await self._link.many([("HGETALL", "cl:models"), ("HGETALL", "cl:aliases")])
        summaries = sorted((version.decode(), orjson.loads(summary)) for version, summary in pairs(models))
        holders = await self._link.many(
            [("ZRANGEBYSCORE", f"cl:holders:{version}", now, "+inf") for version, _ in summaries]
        )
        return [
            ModelRecord(
                version,
                summary,
                sorted(alias.decode() for alias, target in pairs(aliases) if target.decode() == version),
                sorted(core.decode() for core in cores),
            )
            for (version, summary), cores in zip(summaries, holders, strict=True)
        ]

    async def is_calibrated(self, version: str) -> bool:
        """Whether a version was announced with scores that are probabilities."""
        summary = await self._link("HGET", "cl:models", version)
        return summary is not None and bool(orjson.loads(summary).get("calibrated"))

    async def default_cores(self) -> int:
        """Living cores that hold the default model."""
        version = await self._link("HGET", "cl:aliases", DEFAULT_ALIAS)
        if version is None:
            return 0
        return int(await self._link("ZCOUNT", f"cl:holders:{version.decode()}", await self._now_ms(), "+inf"))

    async def tokens(self) -> tuple[dict[str, int], dict[str, int]]:
        """Estimated tokens that wait, by version, and that are claimed and not yet answered, by core."""
        versions, cores, waiting, held = await self._link.many(
            [
                ("HKEYS", "cl:models"),
                ("ZRANGE", "cl:cores", 0, -1),
                ("HGETALL", "cl:waiting"),
                ("HGETALL", "cl:held"),
            ]
        )
        return _counts(versions, waiting), _counts(cores, held)

    async def _now_ms(self) -> int:
        seconds, micros = await self._link("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


def _counts(names: Sequence[bytes], flat: Sequence[bytes]) -> dict[str, int]:
    """Every name with its count, most of them none."""
    counts = dict.fromkeys((name.decode() for name in names), 0)
    return counts | {name.decode(): int(count) for name, count in pairs(flat)}
