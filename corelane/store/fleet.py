"""The fleet: the heartbeats of cores, how the API and operators read them, and how fast the cores drain work.

The gauge that scalers read, and ``Retry-After``, are both waiting tokens divided by ``read_drain_rate``.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.domain.aliases import DEFAULT_ALIAS, decode_weights
from corelane.domain.pauses import Pauses
from corelane.domain.placement import UNPLACED, CoreSight, Outlook, Placement, predict
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink, flatten, pairs, texts, to_ms
from corelane.store.metrics import ProcessMetrics

#: A core that disappeared without leaving is listed as lost for this time, in milliseconds (15 minutes): long enough
#: for an alert and a look. Hosts that come and go have new names each time.
FORGET_CORE_MS = 900_000

#: The drain rate is measured over this many full seconds.
RATE_SECONDS = 10

#: The cores are busy in a second if they drain at least this part of what they can.
BUSY = 0.5

#: In a drain rate, the speeds that cores report weigh as much as this many seconds in which the cores were busy.
SPEEDS_WEIGH_S = 3.0

#: Tokens a second of a service in which no core has measured its speed yet: what one CPU core does in a small model.
UNKNOWN_RATE = 1000.0


@dataclass(frozen=True, slots=True)
class BeatReply:
    """The reply to a heartbeat: the revision of the placements, and which of the core's versions Redis does not know.

    Redis knows none of them after it restarted empty.
    """

    revision: str
    unknown: tuple[str, ...] = ()


class Announcer:
    """Sends a core's heartbeat, on a connection of its own, so that a blocking pop never delays it."""

    def __init__(self, settings: Settings, core: str) -> None:
        self._core = core
        self._lease_ms = int(settings.lease_s * 1000)
        self._link = Link(settings.redis_url)

    def beat(
        self,
        fields: Mapping[str, Any],
        versions: Sequence[str],
        leases: Sequence[str],
        speed: float | None = None,
        *,
        is_full_speed: bool = True,
        is_out: bool = False,
    ) -> BeatReply:
        """Renew the core's state, speed and versions, and its leases.

        ``is_full_speed`` says that the core had enough work when its speed was measured, ``is_out`` that no version may
        be placed on it.
        """
        revision, *unknown = self._link.run(
            "beat",
            core=self._core,
            lease_ms=self._lease_ms,
            speed=speed and f"{speed:.1f}",
            full=is_full_speed,
            out=is_out,
            fields=[str(part) if isinstance(part, float) else part for part in flatten(fields)],
            versions=versions,
            leases=leases,
        )
        return BeatReply(revision.decode(), tuple(version.decode() for version in unknown))

    def read(self, *command: str) -> bytes | None:
        """Send a command that reads a text, on the heartbeats' connection."""
        found: bytes | None = self._link(*command)
        return found

    def flush(self, metrics: ProcessMetrics, *, leaves: bool = False) -> None:
        """Send what the core's process has measured; ``leaves`` says that the process ends."""
        metrics.flush_over(self._link, leaves=leaves)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A version that the fleet knows.

    The record has the aliases that mean the version, with their weights; the cores that hold it now; its placement; and
    the number of its open jobs.
    """

    version: str
    summary: dict[str, Any]
    aliases: dict[str, float]
    cores: list[str]
    placement: Placement
    is_closed: bool
    open_jobs: int


class Fleet:
    """The API's view of cores and models."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def cores(self) -> list[dict[str, Any]]:
        """Return every core, by host and number, with its last heartbeat; of one lost long ago, only name and time."""
        now = await self._link.now_ms()
        beats = await self._link("ZRANGEBYSCORE", keys.CORES, now - FORGET_CORE_MS, "+inf", "WITHSCORES")
        names = sorted(((name.decode(), int(at)) for name, at in pairs(beats)), key=lambda each: _in_order(each[0]))
        hashes = await self._link.many([("HGETALL", keys.core(name)) for name, _ in names])
        return [{"core": name, "beat_ms": at, **texts(raw)} for (name, at), raw in zip(names, hashes, strict=True)]

    async def reports(self, cores: Sequence[str]) -> list[dict[str, str]]:
        """Return the last heartbeat of each of these cores; empty for one that is silent."""
        return [texts(raw) for raw in await self._link.many([("HGETALL", keys.core(core)) for core in cores])]

    async def models(self) -> list[ModelRecord]:
        """Return every version ever announced, by name, except those that were unloaded for good."""
        now = await self._link.now_ms()
        tables = (keys.MODELS, keys.ALIASES, keys.PLACEMENTS, keys.CLOSED, keys.JOB_COUNTS)
        replies = await self._link.many([("HGETALL", key) for key in tables])
        summaries, aliases, placements, closed, jobs = (texts(reply) for reply in replies)
        holders = await self._link.many(
            [("ZRANGEBYSCORE", keys.holders(version), now, "+inf") for version in sorted(summaries)]
        )
        records = [
            ModelRecord(
                version,
                orjson.loads(summaries[version]),
                {
                    alias: weight
                    for alias, means in sorted(aliases.items())
                    for meant, weight in decode_weights(means).items()
                    if meant == version
                },
                sorted(core.decode() for core in cores),
                Placement.model_validate_json(placements[version]) if version in placements else UNPLACED,
                version in closed,
                max(0, int(jobs.get(version, 0))),
            )
            for version, cores in zip(sorted(summaries), holders, strict=True)
        ]
        return [record for record in records if record.cores or record.open_jobs or not record.is_closed]

    async def meant(self, model: str) -> str | None:
        """Return the version that a name means: itself, or the first of an alias; None if it is neither."""
        summary, means = await self._link.many([("HEXISTS", keys.MODELS, model), ("HGET", keys.ALIASES, model)])
        return model if summary else next(iter(decode_weights(means.decode())), None) if means else None

    async def summary(self, version: str) -> dict[str, Any]:
        """Return what workers announced of a version; empty if none did."""
        found: dict[str, Any] = orjson.loads(await self._link("HGET", keys.MODELS, version) or b"{}")
        return found

    async def outlook(self, version: str) -> Outlook | None:
        """Say when a version that is on no living core may be on one; return None if one holds it."""
        held, now = await self._link.many([("ZRANGE", keys.holders(version), "-1", "-1", "WITHSCORES"), ("TIME",)])
        now_ms = to_ms(now)
        if held and float(held[1]) >= now_ms:
            return None
        raw = await self._link("HGET", keys.PLACEMENTS, version)
        placement = UNPLACED if raw is None else Placement.model_validate_json(raw)
        return predict(version, placement, [_sight(core, now_ms) for core in await self.cores()])

    async def waiting_for(self, version: str, owner: str, *, has_begun: bool) -> str | None:
        """Say why an owner's job waits: a pause, or its version is on no living core. Return None if it does not wait.

        For a job that ``has_begun``, only pauses are considered.
        """
        pause = Pauses.decode(texts(await self._link("HGETALL", keys.PAUSED))).against(version, owner)
        if pause is not None:
            return pause.text
        outlook = None if has_begun else await self.outlook(version)
        return None if outlook is None else outlook.reason

    async def has_default(self) -> bool:
        """Return whether the default alias is set."""
        return bool(await self._link("HEXISTS", keys.ALIASES, DEFAULT_ALIAS))

    async def default_cores(self) -> int:
        """Count living cores that hold the default model. If it is several versions, return the lowest count."""
        means = await self._link("HGET", keys.ALIASES, DEFAULT_ALIAS)
        if means is None:
            return 0
        now = await self._link.now_ms()
        versions = decode_weights(means.decode())
        counts = await self._link.many([("ZCOUNT", keys.holders(version), now, "+inf") for version in versions])
        return min(map(int, counts))


def _sight(core: Mapping[str, Any], now_ms: int) -> CoreSight:
    """Read the part of a heartbeat that placing versions needs."""
    models = orjson.loads(core.get("models", "[]"))
    return CoreSight(
        core["core"],
        max(0.0, (now_ms - int(core["beat_ms"])) / 1000),
        core.get("state"),
        {model["version"]: model["state"] for model in models},
        {model["version"]: model["reason"] for model in models if model.get("reason")},
    )


def drain_rate(drained: Sequence[int], speeds: Iterable[float]) -> float:
    """Estimate how many tokens a second the cores drain while they have enough work.

    ``drained`` counts the tokens of the last full seconds, newest first. Seconds with little work are ignored.
    """
    known = sum(speeds)
    busy_from = BUSY * (known or max(drained, default=0))
    busy = list(itertools.takewhile(lambda tokens: tokens >= max(busy_from, 1), drained))
    weight_s = SPEEDS_WEIGH_S if known else 0.0
    return (weight_s * known + sum(busy)) / max(weight_s + len(busy), 1.0) or UNKNOWN_RATE


async def read_drain_rate(link: CommonLink) -> float:
    """Read how many tokens a second the cores with work drain; without a living core, the last speed reported."""
    drained, speeds = await link.run("drain_rates", seconds=RATE_SECONDS)
    return drain_rate([int(tokens) for tokens in drained], [float(speed) for speed in speeds if speed is not None])


def _in_order(core: str) -> tuple[str, int]:
    """Return the sort key of a core: the host, and the core's number on it."""
    host, _, number = core.rpartition("/")
    return host, int(number) if number.isdecimal() else 0
