"""Wait until replicas hold a write before it is reported to a caller as accepted.

Redis' WAIT blocks its connection. So the gate has a connection of its own, and all callers that wait at the same time
share a round. A round first checks that this primary has each write: after a failover it may be a different server.
"""

import asyncio

from corelane.errors import NotReplicated
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.library import Command
from corelane.store.link.link import SOCKET_TIMEOUT_S, AsyncLink

#: Longest wait for the replicas, in milliseconds: a healthy one takes a few, one that resynchronises takes longer.
WAIT_MS = 1000

#: Number of confirmed writes that are remembered, so that they are not checked again.
REMEMBERED = 10_000

#: The key of a hash, and the field in it that callers wait for.
Field = tuple[str, str]


class ReplicaGate:
    """Confirms that writes are replicated, on one event loop."""

    def __init__(self, settings: Settings, wait_ms: int = WAIT_MS) -> None:
        self._replicas, self._wait_ms = settings.replicas_ack, wait_ms
        self._link = AsyncLink(settings.redis_url, SOCKET_TIMEOUT_S + self._wait_ms / 1000)
        self._asked: dict[Field, asyncio.Future[None]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self._known: dict[Field, None] = {}

    async def confirm(self, key: str, field: str) -> None:
        """Wait until enough replicas hold a hash's field that was just written.

        Raise NotReplicated after a timeout, StoreUnavailable if Redis cannot be reached.
        """
        if (key, field) in self._known:
            return
        asked = self._asked.setdefault((key, field), asyncio.get_running_loop().create_future())
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._go_round(), name="replica-gate")
        await asyncio.shield(asked)

    async def close(self) -> None:
        """Close the connection; those who wait get StoreUnavailable."""
        await self._link.close()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])

    async def _go_round(self) -> None:
        while self._asked:
            group, self._asked = self._asked, {}
            try:
                outcomes = await self._confirm(list(group))
            except Exception as error:
                outcomes = [error] * len(group)
            for (field, asked), outcome in zip(group.items(), outcomes, strict=True):
                if outcome is None:
                    self._known[field] = None
                    asked.set_result(None)
                else:
                    asked.set_exception(outcome)
                    asked.exception()  # All who asked may have left.
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    async def _confirm(self, group: list[Field]) -> list[Exception | None]:
        # WAIT covers only what its own connection wrote, and everything written before that. So a message without
        # receivers is published first, which works even if Redis is full. A function of the library would not do: if it
        # was missing, it would be called again after the wait.
        looks: list[Command] = [("HEXISTS", *field) for field in group]
        wait: list[Command] = [("PUBLISH", keys.CONFIRMED, ""), ("WAIT", self._replicas, self._wait_ms)]
        *found, _, count = await self._link.many([*looks, *wait])
        lacking = None
        if count < self._replicas:
            lacking = NotReplicated(
                f"{count} of {self._replicas} replicas hold this after {self._wait_ms} ms. It may be kept or not: send "
                "the request again, with the same Idempotency-Key or name"
            )
        lost = NotReplicated(
            "Redis failed over before its replicas held this, and it was lost. Send the request again, with the same "
            "Idempotency-Key or name"
        )
        return [lacking if is_there else lost for is_there in found]


def open_gate(settings: Settings) -> ReplicaGate | None:
    """Return a gate if the settings ask for one, else None."""
    return ReplicaGate(settings) if settings.replicas_ack else None
