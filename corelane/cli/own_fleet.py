"""The parts that `corelane serve` starts: Redis, then workers and API, then keeper, deliveries and Flower.

A host runs those that its roles ask for. The worker of one core is started by ``start_worker``, and stopped by
``Supervisor.end``.
"""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from functools import partial

from corelane.cli.parts import FleetPart
from corelane.cli.ports import PortClaim
from corelane.cli.probes import Probe, core_probe, http_probe, redis_probe
from corelane.cli.redis_server import choose_server, comment_on, find_servers, note_writer, server_argv
from corelane.cli.redis_users import PASSWORD_BYTES, PASSWORD_FILE, SERVICE, keep_password, with_user, write_users
from corelane.cli.roles import (
    core_range,
    deliveries_argv,
    flower_argv,
    flower_env,
    keeper_argv,
    worker_argv,
    worker_env,
)
from corelane.cli.serve_ports import ServicePorts
from corelane.cli.supervisor import Supervisor
from corelane.domain.addresses import local_url, reachable
from corelane.domain.dispatch import Core
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.cores import CoreSlot, core_slots
from corelane.errors import SetupError, Unavailable
from corelane.settings import Settings
from corelane.settings.rules import without_password

#: A started Redis answers well within this, even with a large append-only file, in seconds.
REDIS_S = 60

#: A Redis that is already running should answer well within this, in seconds.
GIVEN_REDIS_S = 5

#: Workers of Neuron cores start this far apart, in seconds: longer than the runtime takes to claim its core.
NEURON_STAGGER_S = 2

#: Time in which the deliveries stop after an attempt in flight has ended, in seconds.
DELIVERIES_GRACE_S = 5

#: Failures of Redis or the API at the start before the service gives up: they are seldom temporary.
NEEDED_TRIES = 2

#: The command that becomes one process of the fleet.
CORELANE = (sys.executable, "-m", "corelane")

STOP_ORDER = (("api",), ("core",), ("keeper", "deliveries", "flower"), ("redis",))


async def start_redis(settings: Settings, supervisor: Supervisor, claim: PortClaim) -> Settings:
    """Return settings with the URL of a Redis started here, on the claimed port, once it answers.

    The claim must be held until the service ends. While this Redis is relaunched its port is free: another service that
    started then would take it, and the parts of this one would use the other's Redis.
    """
    folder = settings.data_dir / "redis"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)  # Redis lets everyone read its files, and they hold every text
    binary = await asyncio.to_thread(choose_server, folder, find_servers())
    port = claim.choose()
    address = f"redis://127.0.0.1:{port}/0"
    password_file = settings.data_dir / PASSWORD_FILE
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    users = write_users(folder, keep_password(password_file), password)
    supervisor.note(redis=address, redis_password_file=str(password_file.resolve()))
    url = with_user(address, SERVICE, password)
    redis = FleetPart(
        "redis",
        server_argv(binary.path, folder, port, users),
        settings.environment(),
        first_tries=NEEDED_TRIES,
        is_up=redis_probe(url),
        comment=partial(comment_on, folder=folder),
    )
    await supervisor.start(redis)
    await _until_redis(url, supervisor, REDIS_S, settings.cell)
    if not supervisor.is_over:
        note_writer(folder, binary.server)
        supervisor.say(f"{binary.server} keeps its data in {folder}")
    return settings.model_copy(update={"redis_url": url})


async def find_redis(settings: Settings, supervisor: Supervisor) -> None:
    """Wait for the Redis that was given; raise SetupError if it does not answer."""
    await _until_redis(settings.redis_url, supervisor, GIVEN_REDIS_S, settings.cell)
    supervisor.note(redis=without_password(settings.redis_url))


async def _until_redis(url: str, supervisor: Supervisor, seconds: int, cell: str) -> None:
    """Wait for Redis; raise SetupError if it does not answer within ``seconds``, or has data of a newer release or of
    another service.
    """
    from redis.exceptions import RedisError

    from corelane.store.link.blocking import Link
    from corelane.store.schema import require_schema

    reason = ""
    for _ in range(seconds * 5):
        try:
            link = Link(url, timeout_s=2)
            await asyncio.to_thread(link, "PING")
            await asyncio.to_thread(require_schema, link, cell)
            return
        except Unavailable as error:
            reason = error.detail
        except RedisError as error:
            raise SetupError(f"Redis at {without_password(url)} refuses: {error}") from None
        if await supervisor.wait(0.2):
            return
    raise SetupError(f"no Redis at {without_password(url)}: {reason}")


async def start_first(settings: Settings, supervisor: Supervisor, ports: ServicePorts, roles: frozenset[str]) -> None:
    """Start what the first answer takes, of these roles: the workers and the API."""
    if "worker" in roles and not await _start_workers(settings, supervisor):
        return
    if ports.api is None:
        return
    api = FleetPart(
        "api",
        [*CORELANE, "api", "--fd", str(ports.api.fileno())],
        settings.environment(core=None),
        grace_s=15,
        first_tries=NEEDED_TRIES,
        is_up=http_probe(reachable(settings.host), settings.port),
        fds=(ports.api.fileno(),),
    )
    await supervisor.start(api)


async def start_others(settings: Settings, supervisor: Supervisor, ports: ServicePorts, roles: frozenset[str]) -> None:
    """Start the keeper, the deliveries and Flower, those of them that are among these roles."""
    env = settings.environment(core=None)
    if "keeper" in roles:
        await supervisor.start(FleetPart("keeper", keeper_argv(settings.core_host), env, needed=False))
    if "deliveries" in roles:
        grace_s = settings.webhook_timeout_s + DELIVERIES_GRACE_S
        argv = deliveries_argv(settings.core_host)
        await supervisor.start(FleetPart("deliveries", argv, env, needed=False, grace_s=grace_s))
    if ports.flower is not None:
        argv_now = partial(_flower_argv, settings, supervisor, ports.flower)
        up = flower_probe(settings.flower_host, ports.flower)
        flower = FleetPart("flower", argv_now, flower_env(settings, ports.password), needed=False, is_up=up)
        await supervisor.start(flower)


async def _start_workers(settings: Settings, supervisor: Supervisor) -> bool:
    """Start a worker for each core that there must be here; return False if the service ends meanwhile."""
    least, _ = core_range(settings)
    for place, slot in enumerate(core_slots(settings)[:least]):
        # Workers of one device that start at the same moment may find each other's cores busy.
        if place and await supervisor.wait(stagger_s(settings)):
            return False
        await start_worker(settings, supervisor, slot)
    return True


async def start_worker(settings: Settings, supervisor: Supervisor, slot: CoreSlot) -> None:
    """Start the worker of one core, and relaunch it whenever it dies."""
    core = Core(settings.core_host, slot.index)
    up, env = core_probe(settings.redis_url, core), worker_env(settings, slot)
    # Not by way of `corelane worker`, which would import the commands first: 0.6 s.
    part = FleetPart(worker_part(slot), worker_argv(core), env, grace_s=30, is_up=up, cpus=slot.cpus)
    await supervisor.start(part)


def worker_part(slot: CoreSlot) -> str:
    """Return the name of the part that serves a core: for ``Supervisor.end``."""
    return f"core{slot.index}"


def _flower_argv(settings: Settings, supervisor: Supervisor, claim: PortClaim) -> Sequence[str]:
    """Return Flower's command, on another port if its port was taken between the choice and now."""
    before = claim.port
    if (port := claim.choose()) != before:
        supervisor.say(f"port {before} is busy: Flower listens on {port}", "warning")
        supervisor.note(flower=local_url(settings.flower_host, port))
    return flower_argv(settings.model_copy(update={"flower_port": port}))


def flower_probe(host: str, claim: PortClaim) -> Probe:
    """Return a probe: Flower answers, on the port that it has now."""

    async def is_up(pid: int) -> bool:
        return await http_probe(reachable(host), claim.port)(pid)

    return is_up


def stagger_s(settings: Settings) -> float:
    """Return the time between the starts of two workers, in seconds."""
    if settings.stagger_s is not None:
        return settings.stagger_s
    return NEURON_STAGGER_S if settings.target in CHIPS else 0
