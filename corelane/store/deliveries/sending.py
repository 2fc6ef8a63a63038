"""Deliveries as their sender sees them: which are due, their bytes, and the outcome of each attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from corelane.domain.webhook_secrets import OwnedSecret
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import read_results
from corelane.store.link.link import CommonLink, pairs
from corelane.store.link.replicas import ReplicaGate

#: Time for which a webhook that was given up is kept for redelivery, in seconds: a month.
DEAD_TTL_S = 30 * 24 * 3600

#: Most webhooks sent to one host at a time; only one once the host has failed. More would flood a small receiver.
HOST_THREADS = 4

#: After this many failures in a row the webhooks of a host wait; after this time, in seconds, one is tried. Fewer
#: failures happen while a receiver is deployed.
CIRCUIT_FAILURES, CIRCUIT_S = 5, 30.0

#: A delivery that was handed out is due again after this time unless its sender extends the lease, in seconds. So the
#: deliveries of a killed sender go out again within five seconds, even if an attempt may take longer.
LEASE_S = 3.0

#: A sender extends its leases this often, in seconds.
HOLD_S = 0.75

#: Longest and shortest time that an idle sender waits before it asks again, in seconds; a change wakes it sooner.
POLL_S, LEAST_POLL_S = 1.0, 0.01

State = Literal["pending", "delivered", "gone", "dead"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one receiver; ``id`` and payload stay the same over all attempts.

    ``tries`` counts the attempts since the last redelivery, ``attempts`` all of them. Until the payload is fixed,
    either ``data`` holds the event's data as JSON, or ``job`` holds the job as it was at the event.
    """

    id: str
    event: str
    subject: str
    owner: str
    url: str
    host: str
    state: State
    at_ms: int
    tries: int
    attempts: int
    headers: Mapping[str, str] = field(default_factory=dict)
    payload: bytes | None = None
    data: bytes | None = None
    job: JobRecord | None = None

    @classmethod
    def parse(cls, delivery: str, raw: Mapping[bytes, bytes]) -> "Delivery":
        """Read a delivery's hash."""
        text = {key.decode(): value.decode() for key, value in raw.items() if key not in (b"payload", b"data")}
        record = text.get("record")
        facts = {} if record is None else {k.encode(): str(v).encode() for k, v in orjson.loads(record).items()}
        return cls(
            id=delivery,
            event=text["event"],
            subject=text["subject"],
            owner=text["owner"],
            url=text["url"],
            host=text["host"],
            state=text["state"],  # type: ignore[arg-type]  # written by the store's scripts alone
            at_ms=int(text["at_ms"]),
            tries=int(text["tries"]),
            attempts=int(text["attempts"]),
            headers=orjson.loads(text["headers"]),
            payload=raw.get(b"payload"),
            data=raw.get(b"data"),
            job=JobRecord.parse(text["subject"], facts) if facts else None,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it is logged; ``status`` is 0 if the receiver sent no response."""

    at_ms: int
    status: int
    duration_ms: int
    error: str | None
    snippet: str

    @classmethod
    def decode(cls, text: bytes | str) -> "Attempt":
        """Read an attempt back from the log."""
        return cls(*orjson.loads(text))

    def encode(self) -> bytes:
        """Return the text that is logged."""
        return orjson.dumps((self.at_ms, self.status, self.duration_ms, self.error, self.snippet))


async def read_secrets(link: CommonLink, owner: str) -> list[OwnedSecret]:
    """Read the secrets that sign an owner's webhooks now, newest first; empty if the owner has none."""
    found = orjson.loads(await link.run("read_secrets", owner=owner))
    return [
        OwnedSecret(each["id"], each.get("created_ms"), each.get("ends_ms"), each.get("value", "")) for each in found
    ]


class DeliveryStore:
    """Hands out due deliveries and keeps their outcomes. Every call may be repeated."""

    def __init__(self, link: CommonLink, settings: Settings, gate: ReplicaGate | None = None) -> None:
        self._link, self._settings, self._gate = link, settings, gate

    async def take(self, limit: int) -> list[str]:
        """Return at most ``limit`` deliveries to try now. Each is due again after its lease unless held or reported."""
        taken = await self._link.run("take_due", limit=limit, lease_ms=int(1000 * LEASE_S), most=HOST_THREADS)
        return [delivery.decode() for delivery in taken]

    async def hold(self, deliveries: Sequence[str]) -> None:
        """Extend the leases of deliveries that are being sent."""
        await self._link.run("hold", lease_ms=int(1000 * LEASE_S), deliveries=deliveries)

    async def wait(self) -> None:
        """Wait until a delivery may be due, at most ``POLL_S``. This blocks the link: it must have no other call."""
        first = await self._link("ZRANGE", keys.DUE_HOSTS, 0, 0, "WITHSCORES")
        left_s = (float(first[1]) - await self.now_ms()) / 1000 if first else POLL_S
        await self._link("BLPOP", keys.WAKE_SENDERS, min(POLL_S, max(LEAST_POLL_S, left_s)))

    async def get(self, delivery: str) -> Delivery | None:
        """Return a delivery, or None once it is forgotten."""
        raw = dict(pairs(await self._link("HGETALL", keys.delivery % delivery)))
        return Delivery.parse(delivery, raw) if raw else None

    async def fix(self, delivery: str, payload: bytes) -> bytes | None:
        """Store the bytes of an event; return the bytes that were stored first, or None if the delivery is gone."""
        fixed = await self._link.run("fix_payload", payload, id=delivery)
        return None if fixed is None else bytes(fixed)

    async def confirm(self, delivery: str) -> None:
        """Wait until replicas hold the bytes of an event, if that is required; raise NotReplicated after a timeout.

        So no receiver gets an event that a failover could lose or change.
        """
        if self._gate is not None:
            await self._gate.confirm(keys.delivery(delivery), "payload")

    async def secrets(self, owner: str) -> list[OwnedSecret]:
        """Return the owner's own secrets that sign its events now."""
        return await read_secrets(self._link, owner)

    async def results(self, job: JobRecord) -> list[dict[str, Any]]:
        """Return all results of a final job."""
        return await read_results(self._link, job, 0, job.total)

    async def report(
        self,
        delivery: str,
        outcome: str,
        attempt: Attempt,
        *,
        is_host_well: bool,
        pause_s: float | None,
        rest_s: float,
        window_s: float,
    ) -> str:
        """Record an attempt; return the delivery's state, or an empty text if the delivery is gone.

        After a failure the delivery is due again in ``pause_s``, and its host gets no webhooks for ``rest_s``. The
        delivery is given up ``window_s`` after its event.
        """
        settings = self._settings
        state = await self._link.run(
            "report",
            attempt.encode(),
            id=delivery,
            outcome=outcome,
            well=is_host_well,
            pause_ms=-1 if pause_s is None else int(1000 * pause_s),
            host_pause_ms=int(1000 * rest_s),
            ttl=settings.results_ttl_s,
            dead_ttl=DEAD_TTL_S,
            window_ms=int(1000 * window_s),
            most=HOST_THREADS,
            failures=CIRCUIT_FAILURES,
            circuit_ms=int(1000 * CIRCUIT_S),
        )
        return str(state.decode())

    async def now_ms(self) -> int:
        """Return the server's time."""
        return await self._link.now_ms()
