"""Health issues of the service, read from Redis: for the overview, ``/readyz`` and ``corelane doctor``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from corelane.domain.health_issues import (
    CoreSigns,
    HealthIssue,
    core_issues,
    delivery_issues,
    keeper_issues,
    overdue_issues,
    redis_issues,
)
from corelane.log import PassedOver
from corelane.plugin import installed
from corelane.store import keys
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.link.link import CommonLink, pairs, texts
from corelane.store.overdue import CARRIERS, only_overdue, read_waits
from corelane.store.pauses import read_pauses
from corelane.store.plugin import StorePlugin
from corelane.store.redis_info import RedisState, read_redis
from corelane.store.scaling import read_stopped

#: What a `serve` reports about its parts counts for this time, in milliseconds. It reports every three seconds.
BELIEVED_MS = 20_000

#: Most hosts of webhooks that are named.
SHOWN_HOSTS = 5

#: What a `serve` reported is deleted after an hour, in milliseconds.
FORGET_TOLD_MS = 3_600_000


class PartReport:
    """Reports what a `serve` finds wrong with its parts. ``serve`` is its name."""

    def __init__(self, link: CommonLink, serve: str) -> None:
        self._link = link
        self._serve = serve

    async def tell(self, issues: Mapping[str, str]) -> None:
        """Report what is wrong now. Earlier reports are not taken back."""
        pairs_of = [[part, text] for part, text in issues.items()]
        await self._link.run("tell_parts", serve=self._serve, troubles=pairs_of, forget_ms=FORGET_TOLD_MS)


async def read_part_issues(link: CommonLink) -> list[HealthIssue]:
    """Return the parts that do not stay up, from the recent report of each host's `serve`."""
    told = await link("HGETALL", keys.PARTS)
    if not told:
        return []
    now_ms, found = await link.now_ms(), list[HealthIssue]()
    for serve, text in pairs(told):
        words = orjson.loads(text)
        if now_ms - words["at_ms"] < BELIEVED_MS:
            host = serve.decode().partition("#")[0]
            found += [
                HealthIssue(f"{part} on {host}", f"{what}; see the log of `serve`") for part, what in words["troubles"]
            ]
    return found


async def read_cores(link: CommonLink) -> list[dict[str, Any]]:
    """Return the heartbeats of all cores, lost ones too, except cores that left on request.

    A lost core is recognised because it is still listed among those that ask for work.
    """
    cores, claimed, stopped = await Fleet(link).cores(), await link("HKEYS", keys.CLAIMED), await read_stopped(link)
    return [
        core for core in cores if "state" in core or (core["core"].encode() in claimed and core["core"] not in stopped)
    ]


async def read_issues(link: CommonLink, cores: Sequence[Mapping[str, Any]]) -> list[HealthIssue]:
    """Return all issues, except versions that are on no core; ``cores`` come from ``read_cores``.

    If Redis takes no writes, heartbeats and the rounds of loops stop as well. So only that issue is returned.
    """
    state = await read_redis(link)
    of_redis = _redis_issues(state)
    if not state.can_write:
        return of_redis
    rounds, now_ms = texts(await link("HGETALL", keys.ROUNDS)), await link.now_ms()
    ages = {loop: max(0, now_ms - int(at)) / 1000 for loop, at in rounds.items()}
    _, _, dead, _ = await DeliveryLog(link).counts()
    resting = await DeliveryLog(link).resting(SHOWN_HOSTS)
    of_plugins: list[HealthIssue] = []
    for plugin in installed(StorePlugin):
        with PassedOver(plugin.name, "health_issues"):
            of_plugins += await plugin.health_issues(link)
    return [
        *core_issues([_signs(core, now_ms) for core in cores]),
        *await read_part_issues(link),
        *keeper_issues(ages, max((float(core.get("lived_s", math.inf)) for core in cores), default=math.inf)),
        *overdue_issues(only_overdue(await read_waits(link)), CARRIERS),
        *delivery_issues(dead, [(host, (at_ms - now_ms) / 1000) for host, at_ms in resting]),
        *of_plugins,
        *of_redis,
        *(HealthIssue(pause.subject, pause.words) for pause in (await read_pauses(link)).all),
    ]


async def find_issues(link: CommonLink) -> list[HealthIssue]:
    """Return all issues; if there has never been a core, only those of Redis and of the parts of a `serve`."""
    if cores := await read_cores(link):
        return await read_issues(link, cores)
    state = await read_redis(link)
    of_redis = _redis_issues(state)
    return [*of_redis, *await read_part_issues(link)]


def _redis_issues(state: RedisState) -> list[HealthIssue]:
    return redis_issues(state.used_bytes, state.limit_bytes, state.reserved_bytes, can_write=state.can_write)


def _signs(core: Mapping[str, Any], now_ms: int) -> CoreSigns:
    silent_s = max(0, now_ms - int(core["beat_ms"])) / 1000
    models = orjson.loads(core.get("models", "[]"))
    failed = [(each["version"], each.get("reason") or "see its log") for each in models if each["state"] == "failed"]
    reasons = orjson.loads(core.get("reasons", "[]"))
    return CoreSigns(core["core"], core.get("state", "lost"), reasons, silent_s, failed)
