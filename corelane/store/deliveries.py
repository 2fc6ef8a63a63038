"""Deliveries: events on their way to webhooks, and when each is tried next."""

from dataclasses import dataclass

from corelane.settings import Settings
from corelane.store.connections import Link, pairs
from corelane.store.records import JobRecord

#: A delivery that was handed out is due again after this, unless its outcome is reported first, in milliseconds.
ATTEMPT_LEASE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one receiver; ``id`` stays the same over all attempts."""

    id: str
    job: str
    url: str
    event: str
    at_ms: int
    attempts: int


class DeliveryStore:
    """Hands out due deliveries and keeps their outcome."""

    def __init__(self, settings: Settings) -> None:
        self._link = Link(settings.redis_url)

    def take_due(self, limit: int) -> list[str]:
        """Ids of deliveries to try now; each is handed out once a minute at most."""
        now = self._now_ms()
        due = self._link("ZRANGEBYSCORE", "cl:due", "-inf", now, "LIMIT", 0, limit)
        ids = [delivery.decode() for delivery in due]
        if ids:
            self._link("ZADD", "cl:due", "XX", *(part for i in ids for part in (now + ATTEMPT_LEASE_MS, i)))
        return ids

    def get(self, delivery: str) -> Delivery | None:
        """A delivery, or None once it is done or forgotten."""
        raw, due = self._link.many([("HGETALL", f"cl:delivery:{delivery}"), ("ZSCORE", "cl:due", delivery)])
        if not raw or due is None:
            return None
        values = {key.decode(): value.decode() for key, value in pairs(raw)}
        return Delivery(
            delivery, values["job"], values["url"], values["event"], int(values["at_ms"]), int(values["attempts"])
        )

    def job(self, delivery: Delivery) -> JobRecord | None:
        """The job an event is about, or None once it is forgotten."""
        raw = self._link("HGETALL", f"cl:job:{{{delivery.job}}}")
        return JobRecord.parse(delivery.job, dict(pairs(raw))) if raw else None

    def record(self, delivery: str, outcome: str, retry_after_s: float | None) -> None:
        """Note an attempt's outcome; due again after ``retry_after_s``, or done."""
        key = f"cl:delivery:{delivery}"
        commands: list[tuple[object, ...]] = [
            ("HINCRBY", key, "attempts", 1),
            ("HSET", key, "outcome", outcome[:1000]),
        ]
        if retry_after_s is None:
            commands.append(("ZREM", "cl:due", delivery))
        else:
            commands.append(("ZADD", "cl:due", self._now_ms() + int(retry_after_s * 1000), delivery))
        self._link.many(commands)

    def _now_ms(self) -> int:
        seconds, micros = self._link("TIME")
        return int(seconds) * 1000 + int(micros) // 1000
