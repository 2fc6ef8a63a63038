"""The autoscaler of one host: starts and stops the workers of its cores, as the open work requires.

A keeper computes how many cores there should be in total (``scaler``), and every host computes its own share
(``rules``). A worker that is stopped finishes its batch, hands back its other work and ends. Without a recent figure
from a keeper, nothing changes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from corelane.cli.own_fleet import stagger_s, start_worker, worker_part
from corelane.cli.supervisor import Supervisor
from corelane.domain.dispatch import Core
from corelane.engine.cores import core_range, core_slots
from corelane.errors import CorelaneError
from corelane.plugins.fleet.rules import HostCore, next_step, share_cores
from corelane.settings import Settings
from corelane.store.fleet import Fleet
from corelane.store.link.link import AsyncLink
from corelane.store.rollout import write_mark
from corelane.store.scaling import ScaledHost, leave_scaling, read_hosts, read_scaling, tell_host

#: Time between two rounds, in seconds.
LOOK_S = 1.0

#: If another process holds a core for longer than this, another core is used instead, in seconds. A predecessor
#: releases its core sooner.
HELD_S = 60.0


class Autoscaler:
    """Follows the desired cores until the service ends."""

    def __init__(self, settings: Settings, supervisor: Supervisor) -> None:
        self._settings, self._supervisor = settings, supervisor
        self._slots = core_slots(settings)[: settings.cores]
        self._least, self._most = core_range(settings)
        self._link = AsyncLink(settings.redis_url)
        #: The cores whose workers are being stopped.
        self._leaving: dict[int, asyncio.Task[None]] = {}
        #: Since when a core has waited for another process to release it.
        self._held_since: dict[int, float] = {}

    async def run(self) -> None:
        """Start and stop workers until the service ends; then report that this host is no longer scaled."""
        try:
            while not self._supervisor.is_over:
                # `serve` reports failures of Redis. Without Redis nothing changes.
                with suppress(CorelaneError, RedisError):
                    await self._look()
                await self._supervisor.wait(LOOK_S)
            with suppress(CorelaneError, RedisError):
                await leave_scaling(self._link, self._settings.core_host)
        finally:
            await self._link.close()

    async def _look(self) -> None:
        """Report the state of this host, and take the next step."""
        cores = await self._cores()
        host = ScaledHost(
            self._settings.core_host,
            self._least,
            min(self._most, len(cores) - sum(core.is_broken for core in cores)),
            [self._name(core.index) for core in cores if core.is_running and not core.is_leaving],
            [self._name(core.index) for core in cores if core.is_leaving or not core.is_running],
        )
        await tell_host(self._link, host)
        info = await read_scaling(self._link)
        if info is None:
            return
        hosts = await read_hosts(self._link)
        wanted = share_cores(info.desired, [each.range for each in hosts], info.fixed).get(host.name, 0)
        await self._step(*next_step(cores, wanted), f"{info.desired} wanted in all, {wanted} of them here")

    async def _cores(self) -> list[HostCore]:
        """Return the cores of this host in their current state."""
        parts, names = self._supervisor.names(), [self._name(slot.index) for slot in self._slots]
        states = [report.get("state") for report in await Fleet(self._link).reports(names)]
        self._leaving = {index: task for index, task in self._leaving.items() if not task.done()}
        return [
            HostCore(
                slot.index,
                is_running=worker_part(slot) in parts,
                is_leaving=slot.index in self._leaving,
                is_broken=worker_part(slot) in parts and self._is_broken(slot.index, state),
            )
            for slot, state in zip(self._slots, states, strict=True)
        ]

    def _is_broken(self, index: int, state: str | None) -> bool:
        """Return whether a core must be replaced: it is out of service, or another process has held it for long."""
        if state != "waiting":
            self._held_since.pop(index, None)
            return state == "out_of_service"
        now = asyncio.get_running_loop().time()
        return now - self._held_since.setdefault(index, now) > HELD_S

    async def _step(self, start: Sequence[int], stop: Sequence[int], why: str) -> None:
        slots = {slot.index: slot for slot in self._slots}
        for place, index in enumerate(start):
            # Workers of one device that start at the same moment may find each other's cores busy.
            if place and await self._supervisor.wait(stagger_s(self._settings)):
                return
            await start_worker(self._settings, self._supervisor, slots[index])
            await self._note(f"{self._name(index)} is started: {why}")
        for index in stop:
            ending = self._supervisor.end(worker_part(slots[index]))
            self._leaving[index] = asyncio.create_task(ending, name=f"stop-{index}")
            await self._note(f"{self._name(index)} is stopped: {why}")

    async def _note(self, text: str) -> None:
        """Log a change, and mark it in the history."""
        self._supervisor.say(text)
        await write_mark(self._link, "scale", text)

    def _name(self, index: int) -> str:
        return str(Core(self._settings.core_host, index))
