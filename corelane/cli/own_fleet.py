"""The parts that `corelane serve` runs on one host: Redis, then workers and API, then keeper, deliveries and Flower.

A host runs the parts that its roles require. It is ready once its cores are up, its API replies and its other parts
run.
"""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from corelane.cli.ports import hold_port, require_port
from corelane.cli.redis_server import find_server, server_argv
from corelane.cli.redis_users import (
    PASSWORD_BYTES,
    PASSWORD_FILE,
    SERVICE,
    WORKER,
    keep_password,
    with_user,
    write_users,
)
from corelane.cli.roles import (
    deliveries_argv,
    flower_argv,
    flower_env,
    flower_password,
    keeper_argv,
    worker_argv,
    worker_env,
)
from corelane.cli.supervisor import FleetPart, Supervisor
from corelane.domain.dispatch import Core
from corelane.engine.backends.plugin import added_targets
from corelane.engine.cores import CoreSlot, core_slots
from corelane.errors import CorelaneError, SetupError, Unavailable
from corelane.settings import Settings, is_loopback
from corelane.settings.address import local_url, reachable
from corelane.settings.rules import without_password
from corelane.store import keys

if TYPE_CHECKING:
    from corelane.store.link.link import AsyncLink

#: Longest wait for a Redis that was started here, in seconds; a large append-only file makes it slow.
REDIS_S = 60

#: Longest wait for a Redis that was already running, in seconds.
GIVEN_REDIS_S = 5

#: Time in which the deliveries stop once the current attempt has ended, in seconds.
DELIVERIES_GRACE_S = 5

#: Failures of Redis or the API during the start before the service gives up: they are seldom temporary.
NEEDED_TRIES = 2

#: Longest wait for the parts of one machine, with their models loaded, in seconds.
READY_S = 300

#: Longest wait for a part's reply to a probe, in seconds; and for the API's readiness, for which it asks Redis.
PROBE_TIMEOUT_S, READY_TIMEOUT_S = 2, 5

#: Time between two checks of Redis or of the cores, in seconds.
LOOK_S = 0.2

#: The command that becomes one process of the fleet.
CORELANE = (sys.executable, "-m", "corelane")

#: The prefixes of the names of parts, in the order in which they are stopped.
STOP_ORDER = (("api",), ("core",), ("keeper", "deliveries", "flower"), ("redis",))

#: The advice if the port of Redis is taken: another port, or the Redis on that port.
OTHER_REDIS = "--redis-port, or use that Redis with --redis URL"

#: A warning for users of a Redis that cannot read its files: Redis' own advice can lose data.
REDIS_ADVICE = (
    ". Do not run redis-check-aof on {} itself: it cuts the file at the first place that it cannot read, and all "
    "accepted work behind it is lost. Copy the folder first, and see Operations, 'Redis cannot read its files'"
)


@dataclass(slots=True)
class OwnFleet:
    """The parts of this host: their settings, which change as ports are taken, and the API's socket."""

    settings: Settings
    supervisor: Supervisor
    roles: frozenset[str]
    #: The Redis that the workers use, as a user with fewer rights, if it was started here.
    workers_redis_url: str | None = None
    api_socket: socket | None = None
    flower_password: str = field(default="", repr=False)

    def take_ports(self) -> None:
        """Hold the API's port, and check that the other ports are free; raise SetupError if one is taken."""
        settings, supervisor = self.settings, self.supervisor
        if "redis" in self.roles:
            self._change(redis_port=require_port("127.0.0.1", settings.redis_port, OTHER_REDIS))
        if "api" in self.roles:
            self.api_socket = hold_port(settings.host, settings.port)
            self._change(port=int(self.api_socket.getsockname()[1]))
            if settings.requires_keys:
                supervisor.say("the API requires a key (CORELANE_AUTH)")
            elif not is_loopback(settings.host):
                said = f"the API listens on {settings.host} and requires no key (CORELANE_AUTH=off)"
                supervisor.say(f"{said}: put a proxy in front of it", "warning")
            supervisor.note(api=local_url(settings.host, self.settings.port))
        if "flower" in self.roles:
            self._change(flower_port=require_port(settings.flower_host, settings.flower_port, "--flower-port"))
            self.flower_password = flower_password(settings)
            supervisor.note(flower=local_url(settings.flower_host, self.settings.flower_port))

    def close(self) -> None:
        """Close the API's port: callers are refused from now on."""
        if self.api_socket is not None:
            self.api_socket.close()

    async def start_redis(self) -> None:
        """Start a Redis; once it replies, make the settings point to it."""
        from corelane.store.link.blocking import Link

        settings, supervisor = self.settings, self.supervisor
        folder, password_file = settings.data_dir / "redis", settings.data_dir / PASSWORD_FILE
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # Redis lets everyone read its files, and they hold every text
        binary = find_server()
        password, of_workers = (secrets.token_urlsafe(PASSWORD_BYTES) for _ in range(2))
        users = write_users(folder, keep_password(password_file), password, of_workers)
        address = f"redis://127.0.0.1:{settings.redis_port}/0"
        url = with_user(address, SERVICE, password)

        async def is_up(_: int) -> bool:
            return await _ask_redis(url, "PING") is not None

        supervisor.note(redis=address, redis_password_file=str(password_file.resolve()))
        redis = FleetPart(
            "redis",
            server_argv(binary, folder, settings.redis_port, users),
            settings.environment(),
            first_tries=NEEDED_TRIES,
            is_up=is_up,
            advice=REDIS_ADVICE.format(folder),
        )
        await supervisor.start(redis)
        self._change(redis_url=url)
        await self._until_redis(REDIS_S)
        if not supervisor.is_over:
            supervisor.say(f"{binary.name} keeps its data in {folder}")
            # Workers may call the library's functions, but not load them. This call loads them.
            with closing(Link(url)) as link:
                await asyncio.to_thread(link.run, "overdue")
        self.workers_redis_url = with_user(address, WORKER, of_workers)

    async def find_redis(self) -> None:
        """Wait for the Redis that the user named; raise SetupError if it does not reply."""
        await self._until_redis(GIVEN_REDIS_S)
        self.supervisor.note(redis=without_password(self.settings.redis_url))

    async def _until_redis(self, seconds: int) -> None:
        """Wait for Redis; raise SetupError if it does not reply, or has data of another format or service."""
        from redis.exceptions import RedisError

        from corelane.store.link.blocking import Link
        from corelane.store.schema import require_schema

        url, reason = self.settings.redis_url, ""
        for _ in range(int(seconds / LOOK_S)):
            try:
                link = Link(url, timeout_s=2)
                await asyncio.to_thread(link, "PING")
                await asyncio.to_thread(require_schema, link, self.settings.cell)
                return
            except Unavailable as error:
                reason = error.detail
            except RedisError as error:
                raise SetupError(f"Redis at {without_password(url)} refuses: {error}") from None
            if await self.supervisor.wait(LOOK_S):
                return
        raise SetupError(f"no Redis at {without_password(url)}: {reason}")

    async def start_first(self) -> None:
        """Start the workers and the API, which the first result needs, if they are among the roles."""
        settings = self.settings
        if "worker" in self.roles and not await self._start_workers():
            return
        if self.api_socket is None:
            return
        fd = self.api_socket.fileno()
        api = FleetPart(
            "api",
            [*CORELANE, "api", "--fd", str(fd)],
            settings.environment(core=None),
            grace_s=15,
            first_tries=NEEDED_TRIES,
            is_up=lambda _: replies_http(reachable(settings.host), settings.port),
            fds=(fd,),
        )
        await self.supervisor.start(api)

    async def start_others(self) -> None:
        """Start the keeper, the deliveries and Flower, if they are among the roles."""
        settings, start = self.settings, self.supervisor.start
        env = settings.environment(core=None)
        if "keeper" in self.roles:
            await start(FleetPart("keeper", keeper_argv(settings.core_host), env, needed=False))
        if "deliveries" in self.roles:
            grace_s = settings.webhook_timeout_s + DELIVERIES_GRACE_S
            argv = deliveries_argv(settings.core_host)
            await start(FleetPart("deliveries", argv, env, needed=False, grace_s=grace_s))
        if "flower" in self.roles:
            flower = FleetPart(
                "flower",
                flower_argv(settings),
                flower_env(settings, self.flower_password),
                needed=False,
                is_up=lambda _: replies_http(reachable(settings.flower_host), settings.flower_port),
            )
            await start(flower)

    async def until_ready(self) -> None:
        """Wait until this host is ready, or the service ends. End the service if the host can never be ready.

        With workers, the cores of this host must be up or out of service. An API beside workers must be able to serve
        an item. An API without workers only has to respond, since its replies depend on other hosts. Other parts must
        run.
        """
        from corelane.store.link.link import AsyncLink

        supervisor, loop = self.supervisor, asyncio.get_running_loop()
        deadline = loop.time() + READY_S
        waiting, names = list[str](), list[str]()
        if "worker" in self.roles:
            slots = core_slots(self.settings)[: self.settings.cores]
            names = [str(Core(self.settings.core_host, slot.index)) for slot in slots]
        # The cores are read from Redis: the API would ask for a key, and may be on another host.
        link = AsyncLink(self.settings.redis_url)
        while not supervisor.is_over and not await self._is_ready(link, names, waiting):
            if loop.time() > deadline:
                supervisor.fail("; ".join([f"not ready after {READY_S} s", *waiting]))
            await supervisor.wait(LOOK_S)
        await link.close()

    async def _is_ready(self, link: "AsyncLink", names: Sequence[str], waiting: list[str]) -> bool:
        """Return whether the parts work and the named cores too; put into ``waiting`` what cores wait for."""
        from corelane.store.fleet import Fleet

        settings, supervisor = self.settings, self.supervisor
        if not names:
            return supervisor.all_up(("api",) if "api" in self.roles else ())
        with suppress(Unavailable):
            cores = await Fleet(link).reports(names)
            states = [core.get("state") for core in cores]
            waiting[:] = [core["reasons"] for core in cores if core.get("state") == "waiting"]
            out = states.count("out_of_service")
            up = sum(state in ("idle", "busy") for state in states)
            if up and up + out >= len(names):
                return "api" not in self.roles or await asyncio.to_thread(_api_is_ready, settings)
            if "failed" in states:
                supervisor.fail("a core could not load its model; the reason is shown above")
            elif out >= len(names):
                supervisor.fail("every core is out of service; the reasons are shown above")
        return False

    async def _start_workers(self) -> bool:
        """Start a worker for each core that must run here; return False if the service ends first."""
        added = added_targets().get(self.settings.target)
        for place, slot in enumerate(core_slots(self.settings)[: self.settings.cores]):
            if place and await self.supervisor.wait(0 if added is None else added.stagger_s):
                return False
            await self._start_worker(slot)
        return True

    async def _start_worker(self, slot: CoreSlot) -> None:
        """Start the worker of one core, and relaunch it whenever it dies."""
        settings, core = self.settings, Core(self.settings.core_host, slot.index)

        async def is_up(pid: int) -> bool:
            """Return whether a child of this worker has reported the core, in any state."""
            child = await _ask_redis(settings.redis_url, "HGET", keys.core(core), "pid")
            with suppress(OSError):
                # In /proc the parent is the second field behind the name.
                stat = Path(f"/proc/{int(child or 0)}/stat").read_text()
                return stat.rpartition(")")[2].split()[1] == str(pid)
            return False

        # Not through `corelane worker`, which would first import the commands: 0.6 s.
        env = worker_env(settings, slot)
        if self.workers_redis_url is not None:
            env["CORELANE_REDIS_URL"] = self.workers_redis_url
        name = f"core{slot.index}"
        await self.supervisor.start(FleetPart(name, worker_argv(core), env, grace_s=30, is_up=is_up, cpus=slot.cpus))

    def _change(self, **changes: object) -> None:
        self.settings = self.settings.model_copy(update=changes)


async def replies_http(host: str, port: int) -> bool:
    """Return whether a server there replies an HTTP request, with any status."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return (await reader.readline()).startswith(b"HTTP/1.1 ")
            finally:
                writer.close()
    return False


async def _ask_redis(url: str, *command: str) -> bytes | None:
    """Return Redis' reply, or None if it does not reply."""
    from redis.exceptions import RedisError

    from corelane.store.link.link import AsyncLink

    link = AsyncLink(url, PROBE_TIMEOUT_S)
    try:
        reply = await link(*command)
        return bytes(reply) if isinstance(reply, bytes) else None if reply is None else str(reply).encode()
    except (CorelaneError, RedisError):
        return None
    finally:
        await link.close()


def _api_is_ready(settings: Settings) -> bool:
    """Return whether the API of this host reports that it can serve an item."""
    from corelane.client import Client

    with Client(local_url(settings.host, settings.port), patience_s=0, timeout_s=READY_TIMEOUT_S) as client:
        return client.ready()
