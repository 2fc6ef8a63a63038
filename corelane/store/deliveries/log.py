"""Deliveries as the API shows them: those of a subject, one by its id, the dead letters; and one more try."""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.store import keys
from corelane.store.deliveries.sending import Attempt, Delivery
from corelane.store.link.surface import CommonLink, pairs
from corelane.store.overdue import Waits, read_waits

#: Hosts whose lines are counted for a scrape; beyond it the count is a lower bound.
COUNTED_HOSTS = 1000


@dataclass(frozen=True, slots=True)
class LoggedDelivery:
    """A delivery with its log. ``next_ms`` is when it is tried next, None once it is done."""

    delivery: Delivery
    attempts: Sequence[Attempt]
    next_ms: int | None
    ended_ms: int | None


class DeliveryLog:
    """The API's side of deliveries."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def get(self, delivery: str) -> LoggedDelivery | None:
        """One delivery, or None if there is none (any more)."""
        found = await self._read([delivery])
        return found[0] if found else None

    async def of(self, subject: str) -> list[LoggedDelivery]:
        """The deliveries of a subject, in the order of their events."""
        ids = await self._link("ZRANGE", keys.deliveries(subject), 0, -1)
        return await self._read([each.decode() for each in ids])

    async def dead(self, after_ms: int, after: str, limit: int, owner: str | None = None) -> list[LoggedDelivery]:
        """Dead letters from the oldest on, those given up after a time, or at it and sorting after an id; of one owner
        alone, if given.
        """
        found: list[LoggedDelivery] = []
        while len(found) < limit:
            flat = await self._link(
                "ZRANGE", keys.DEAD, after_ms, "+inf", "BYSCORE", "LIMIT", 0, limit + 100, "WITHSCORES"
            )
            entries = [(int(score), each.decode()) for each, score in pairs(flat)]
            fresh = [entry for entry in entries if entry > (after_ms, after)]
            if not fresh:
                break
            ids = [each for _, each in fresh]
            found += await self._read(ids if owner is None else await self._owned(ids, owner))
            after_ms, after = fresh[-1]
        return found[:limit]

    async def redeliver(self, delivery: str) -> bool:
        """Have a delivery tried now, with the same id and bytes; False if there is none. May be repeated."""
        return bool(await self._link.run("redeliver", id=delivery))

    async def counts(self) -> tuple[dict[str, int], int, int, int]:
        """Count attempts by outcome, deliveries that wait, dead letters and open circuits."""
        posted, dead, circuits, hosts = await self._link.many(
            [
                ("HGETALL", keys.POSTED),
                ("ZCARD", keys.DEAD),
                ("ZCARD", keys.CIRCUITS),
                ("ZRANGE", keys.DUE_HOSTS, 0, COUNTED_HOSTS - 1),
            ]
        )
        lines = await self._link.many([("ZCARD", keys.due(host.decode())) for host in hosts])
        outcomes = {outcome.decode(): int(count) for outcome, count in pairs(posted)}
        return outcomes, sum(lines), dead, circuits

    async def waits(self) -> Waits:
        """How long deliveries, and what else could go on by itself, have waited for somebody."""
        return await read_waits(self._link)

    async def _owned(self, ids: Sequence[str], owner: str) -> list[str]:
        """Those that are an owner's."""
        owners = await self._link.many([("HGET", keys.delivery(each), "owner") for each in ids])
        return [each for each, found in zip(ids, owners, strict=True) if found == owner.encode()]

    async def _read(self, ids: Sequence[str]) -> list[LoggedDelivery]:
        """Those that are still there, in the same order."""
        hashes = await self._link.many([("HGETALL", keys.delivery(each)) for each in ids])
        logs = await self._link.many([("LRANGE", keys.attempts(each), 0, -1) for each in ids])
        raws = [dict(pairs(flat)) for flat in hashes]
        lines = [raw.get(b"host", b"").decode() for raw in raws]
        due = await self._link.many([("ZSCORE", keys.due(host), each) for host, each in zip(lines, ids, strict=True)])
        found = []
        for each, raw, log, score in zip(ids, raws, logs, due, strict=True):
            if raw:
                attempts = [Attempt.decode(entry) for entry in log]
                ended = raw.get(b"ended_ms")
                found.append(
                    LoggedDelivery(
                        Delivery.parse(each, raw),
                        attempts,
                        None if score is None else int(float(score)),
                        None if ended is None else int(ended),
                    )
                )
        return found
