"""Reads deliveries for the API: by id, by job or batch, or only dead letters. Also sends a delivery again."""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.store import keys
from corelane.store.deliveries.sending import Attempt, Delivery
from corelane.store.link.link import CommonLink, pairs

#: Most hosts whose deliveries are counted for a scrape; with more hosts the count is a lower bound.
COUNTED_HOSTS = 1000

#: Most hosts for which waiting deliveries are listed.
LISTED_HOSTS = 100


@dataclass(frozen=True, slots=True)
class LoggedDelivery:
    """A delivery with its attempts. ``next_ms`` is the earliest time of the next attempt, None once none follows."""

    delivery: Delivery
    attempts: Sequence[Attempt]
    next_ms: int | None
    ended_ms: int | None


class DeliveryLog:
    """The API's side of deliveries."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def get(self, delivery: str) -> LoggedDelivery | None:
        """Read one delivery; return None if it does not exist any more, or never did."""
        found = await self._read([delivery])
        return found[0] if found else None

    async def of(self, subject: str) -> list[LoggedDelivery]:
        """Read the deliveries of a job or batch, in the order of their events."""
        ids = await self._link("ZRANGE", keys.deliveries(subject), 0, -1)
        return await self._read([each.decode() for each in ids])

    async def dead(self, after_ms: int, after: str, limit: int, owner: str | None) -> list[LoggedDelivery]:
        """Read dead letters, oldest first: given up after ``after_ms``, or at ``after_ms`` with an id above ``after``.

        With ``owner``, read only dead letters of this owner.
        """
        found: list[LoggedDelivery] = []
        seen, most = 0, limit + 100
        while len(found) < limit:
            flat = await self._link("ZRANGE", keys.DEAD, after_ms, "+inf", "BYSCORE", "LIMIT", seen, most, "WITHSCORES")
            entries = [(int(score), each.decode()) for each, score in pairs(flat)]
            ids = [each for at_ms, each in entries if (at_ms, each) > (after_ms, after)]
            found += await self._read(ids if owner is None else await self._owned(ids, owner))
            seen += len(entries)
            if len(entries) < most:
                break
        return found[:limit]

    async def waiting(self, limit: int, owner: str | None = None) -> list[LoggedDelivery]:
        """Read deliveries that wait for their next attempt, earliest first; with ``owner``, only that owner's.

        Look only at the ``LISTED_HOSTS`` hosts that are due first, and at the first ``limit`` deliveries of each.
        """
        hosts = await self._link("ZRANGE", keys.DUE_HOSTS, 0, LISTED_HOSTS - 1)
        lines = await self._link.many(
            [("ZRANGE", keys.due(host.decode()), 0, limit - 1, "WITHSCORES") for host in hosts]
        )
        entries = sorted((float(score), each.decode()) for line in lines for each, score in pairs(line))
        ids = [each for _, each in entries]
        chosen = ids if owner is None else await self._owned(ids, owner)
        return await self._read(chosen[:limit])

    async def redeliver(self, delivery: str) -> bool:
        """Make a delivery due now, with the same id and bytes; return False if there is none. May be repeated."""
        return bool(await self._link.run("redeliver", id=delivery))

    async def counts(self) -> tuple[dict[str, int], int, int, int]:
        """Count attempts by outcome, waiting deliveries, dead letters and open circuits."""
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

    async def resting(self, limit: int) -> list[tuple[str, int]]:
        """Return the hosts that rest because their webhooks fail, each with the earliest time of its next attempt."""
        hosts = await self._link("ZRANGE", keys.CIRCUITS, 0, limit - 1)
        times = await self._link.many([("ZSCORE", keys.DUE_HOSTS, host) for host in hosts])
        return [(host.decode(), int(float(at))) for host, at in zip(hosts, times, strict=True) if at is not None]

    async def _owned(self, ids: Sequence[str], owner: str) -> list[str]:
        """Return those of the deliveries that belong to an owner."""
        owners = await self._link.many([("HGET", keys.delivery(each), "owner") for each in ids])
        return [each for each, found in zip(ids, owners, strict=True) if found == owner.encode()]

    async def _read(self, ids: Sequence[str]) -> list[LoggedDelivery]:
        """Read deliveries, in the given order; those that are gone are left out."""
        hashes = await self._link.many([("HGETALL", keys.delivery(each)) for each in ids])
        logs = await self._link.many([("LRANGE", keys.attempts(each), 0, -1) for each in ids])
        raws = [dict(pairs(flat)) for flat in hashes]
        lines = [raw.get(b"host", b"").decode() for raw in raws]
        due = await self._link.many([("ZSCORE", keys.due(host), each) for host, each in zip(lines, ids, strict=True)])
        # A due delivery may still have to wait: its host may rest, or take one delivery at a time.
        open_from = await self._link.many([("ZSCORE", keys.DUE_HOSTS, host) for host in lines])
        found = []
        for each, raw, log, score, host_score in zip(ids, raws, logs, due, open_from, strict=True):
            if raw:
                attempts = [Attempt.decode(entry) for entry in log]
                ended = raw.get(b"ended_ms")
                found.append(
                    LoggedDelivery(
                        Delivery.parse(each, raw),
                        attempts,
                        None if score is None else int(max(float(score), float(host_score or 0))),
                        None if ended is None else int(ended),
                    )
                )
        return found
