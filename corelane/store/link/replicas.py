"""Accepted means replicated: waits until replicas hold what was written, before a caller hears of it.

Redis' WAIT blocks its connection, and speaks for the writes that came before it. So it has a connection of its own, and
all who ask at the same time share one: the next round begins when the last one ended, with all who came meanwhile. A
round first looks whether this primary has what each of them wrote: after a failover it may be another one.
"""

import asyncio
from dataclasses import dataclass

from corelane.errors import NotReplicated
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.library import Command
from corelane.store.link.link import SOCKET_TIMEOUT_S, AsyncLink

#: What was confirmed recently is not asked for again: keys and fields that are remembered.
REMEMBERED = 10_000


@dataclass(slots=True)
class _Asked:
    """A hash's field that somebody waits for."""

    key: str
    field: str
    replied: "asyncio.Future[None]"


class ReplicaGate:
    """Confirms writes, on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._replicas, self._wait_ms = settings.replicas_ack, settings.replicas_ack_ms
        self._link = AsyncLink(settings.redis_url, SOCKET_TIMEOUT_S + self._wait_ms / 1000)
        self._asked: list[_Asked] = []
        self._rounds: asyncio.Task[None] | None = None
        self._known: dict[tuple[str, str], None] = {}

    async def confirm(self, key: str, field: str) -> None:
        """Return once enough replicas hold a hash's field, which was written before; raise NotReplicated if they do not
        in time, StoreUnavailable if Redis is unreachable.
        """
        if (key, field) in self._known:
            return
        asked = _Asked(key, field, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._go_round(), name="replica-gate")
        await asked.replied

    async def close(self) -> None:
        """Close the connection; those who wait are told that it is unavailable."""
        await self._link.close()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])

    async def _go_round(self) -> None:
        while self._asked:
            group, self._asked = self._asked, []
            try:
                outcomes = await self._confirm(group)
            except Exception as error:
                outcomes = [error] * len(group)
            for asked, outcome in zip(group, outcomes, strict=True):
                if asked.replied.done():
                    continue
                if outcome is None:
                    self._remember(asked)
                    asked.replied.set_result(None)
                else:
                    asked.replied.set_exception(outcome)

    async def _confirm(self, group: list[_Asked]) -> list[Exception | None]:
        # WAIT speaks for what its own connection sent to replicas, and so for all that was written before that: a
        # message to nobody, as it is taken where Redis is full, too. No function of the library: a missing one would be
        # called again after the wait.
        looks: list[Command] = [("HEXISTS", asked.key, asked.field) for asked in group]
        wait: list[Command] = [("PUBLISH", keys.CONFIRMED, ""), ("WAIT", self._replicas, self._wait_ms)]
        *found, _, count = await self._link.many([*looks, *wait])
        if count < self._replicas:
            lacking: Exception | None = NotReplicated(
                f"{count} of {self._replicas} replicas hold this after {self._wait_ms} ms. It may be kept or not: send "
                "the request again, with the same Idempotency-Key or name"
            )
        else:
            lacking = None
        return [lacking if is_there else _lost() for is_there in found]

    def _remember(self, asked: _Asked) -> None:
        self._known[asked.key, asked.field] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _lost() -> NotReplicated:
    return NotReplicated(
        "Redis failed over before its replicas held this, and it was lost. Send the request again, with the same "
        "Idempotency-Key or name"
    )


def open_gate(settings: Settings) -> ReplicaGate | None:
    """Return a gate where the settings ask for one."""
    return ReplicaGate(settings) if settings.replicas_ack else None
