"""The fleet: what cores announce of themselves, and how the API and operators read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.settings import Settings
from corelane.store.connections import AsyncClient, Link, store_errors

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

    def beat(self, fields: Mapping[str, Any], versions: Sequence[str], leases: Sequence[str]) -> None:
        """Renew the core, what it holds, and its leases."""
        flat = [part for pair in fields.items() for part in pair]
        self._link.run("beat", self._core, self._lease_ms, len(fields), *flat, len(versions), *versions, *leases)

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

    def __init__(self, client: AsyncClient) -> None:
        self._redis = client

    async def cores(self) -> list[dict[str, Any]]:
        """Every core heard of in the last hour: its heartbeat, or only name and last beat where it is lost."""
        with store_errors():
            now = await self._now_ms()
            beats = await self._redis.zrangebyscore("cl:cores", now - FORGET_CORE_MS, "+inf", withscores=True)
            names = sorted((name.decode(), int(at)) for name, at in beats)
            async with self._redis.pipeline(transaction=False) as pipe:
                for name, _ in names:
                    pipe.hgetall(f"cl:core:{name}")
                hashes = await pipe.execute()
        return [
            {"core": name, "beat_ms": at, **{key.decode(): value.decode() for key, value in raw.items()}}
            for (name, at), raw in zip(names, hashes, strict=True)
        ]

    async def models(self) -> list[ModelRecord]:
        """Every version ever announced, by name."""
        with store_errors():
            now = await self._now_ms()
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hgetall("cl:models").hgetall("cl:aliases")
                models, aliases = await pipe.execute()
            versions = sorted(version.decode() for version in models)
            async with self._redis.pipeline(transaction=False) as pipe:
                for version in versions:
                    pipe.zrangebyscore(f"cl:holders:{version}", now, "+inf")
                holders = await pipe.execute()
        return [
            ModelRecord(
                version,
                orjson.loads(models[version.encode()]),
                sorted(alias.decode() for alias, target in aliases.items() if target.decode() == version),
                sorted(core.decode() for core in cores),
            )
            for version, cores in zip(versions, holders, strict=True)
        ]

    async def resolve(self, name: str) -> str | None:
        """The version that a version, a name or an alias means; None if it means nothing."""
        async with self._redis.pipeline(transaction=False) as pipe:
            with store_errors():
                is_version, target = await pipe.hexists("cl:models", name).hget("cl:aliases", name).execute()
        if is_version:
            return name
        return target.decode() if target else None

    async def ready_cores(self, version: str) -> int:
        """Living cores that hold a version."""
        with store_errors():
            now = await self._now_ms()
            return int(await self._redis.zcount(f"cl:holders:{version}", now, "+inf"))

    async def outstanding_tokens(self) -> dict[str, int]:
        """Estimated tokens routed to each core and not yet answered."""
        with store_errors():
            raw = await self._redis.hgetall("cl:tokens")
        return {core.decode(): int(count) for core, count in raw.items()}

    async def _now_ms(self) -> int:
        seconds, micros = await self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
