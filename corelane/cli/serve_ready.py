"""When a host that `serve` runs is ready: its cores are up, its API answers, its other parts run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from corelane.cli.roles import core_range
from corelane.cli.supervisor import Supervisor
from corelane.domain.addresses import local_url
from corelane.domain.dispatch import Core
from corelane.engine.cores import core_slots
from corelane.errors import Unavailable
from corelane.settings import Settings

#: The parts of one machine are ready well within this, with their models loaded, in seconds.
READY_S = 300

#: A ready API answers at once, in seconds.
ASK_S = 5

#: Time between two looks, in seconds.
LOOK_S = 0.2


async def until_ready(settings: Settings, supervisor: Supervisor, roles: frozenset[str]) -> None:
    """Wait until this host does what its roles ask, or the service ends; end it if that can never be.

    With workers every core of this host is up or out of service, of those that come and go by load as many as there
    must be; and the API beside them would answer a question, or has a core started for it. An API without workers
    answers; whether a question does depends on other hosts. Other parts run.
    """
    if "worker" in roles:
        await _until_cores(settings, supervisor, has_api="api" in roles)
    else:
        await _until(supervisor, lambda: _all_up(supervisor, ("api",) if "api" in roles else ()))


async def _all_up(supervisor: Supervisor, names: Sequence[str]) -> bool:
    return supervisor.all_up(names)


async def _until(
    supervisor: Supervisor, is_ready: Callable[[], Awaitable[bool]], about: Callable[[], str] = str
) -> None:
    """Look until it is ready; fail after READY_S, with what ``about`` adds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    while not supervisor.is_over and not await is_ready():
        if loop.time() > deadline:
            supervisor.fail(f"not ready after {READY_S} s{about()}")
        await supervisor.wait(LOOK_S)


async def _until_cores(settings: Settings, supervisor: Supervisor, *, has_api: bool) -> None:
    from corelane.store.fleet import Fleet
    from corelane.store.link.link import AsyncLink

    names = [str(Core(settings.core_host, slot.index)) for slot in core_slots(settings)[: settings.cores]]
    least, _ = core_range(settings)
    waiting: list[str] = []
    # The cores are read from Redis: the API would ask for a key, and may be on another host.
    link = AsyncLink(settings.redis_url)
    fleet = Fleet(link)

    async def is_ready() -> bool:
        with suppress(Unavailable):
            cores = await fleet.reports(names)
            states = [core.get("state") for core in cores]
            waiting[:] = [core["reasons"] for core in cores if core.get("state") == "waiting"]
            out = states.count("out_of_service")
            up = sum(state in ("idle", "busy") for state in states)
            if (up or not least) and up + out >= least:
                return not has_api or await asyncio.to_thread(_answers, settings)
            if "failed" in states:
                supervisor.fail("a core could not load its model; the reason is shown above")
            elif least and out >= len(names):
                supervisor.fail("every core is out of service; the reasons are shown above")
        return False

    await _until(supervisor, is_ready, lambda: "".join(f"; {reason}" for reason in waiting))
    await link.close()


def _answers(settings: Settings) -> bool:
    """Return whether the API of this host says that a question would be answered."""
    from corelane.client import Client

    with Client(local_url(settings.host, settings.port), patience_s=0, timeout_s=ASK_S) as client:
        return client.ready()
