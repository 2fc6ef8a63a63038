"""``corelane serve``: a whole fleet on one machine. Finds or starts Redis, compiles the default model if need be,
starts keeper, workers, deliveries, API and Flower in this order, waits until a question would be answered, and says
where everything is.

Stops in order too: the API first, so that nothing new comes in; then the workers, which finish their batch; then
the keeper, the deliveries and Flower; Redis last, with everything on disk.
"""

import asyncio
import fcntl
import os
import re
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel

from corelane.artifacts import model_name
from corelane.cli.compile import is_compiled
from corelane.cli.errors import exit_on_error, require
from corelane.cli.parts import Part
from corelane.cli.ports import free_port
from corelane.cli.probes import core_probe, http_probe, redis_probe
from corelane.cli.redis_files import comment_on, note_writer
from corelane.cli.redis_server import choose_server, find_servers, server_argv
from corelane.cli.roles import deliveries_argv, flower_argv, flower_env, keeper_argv, worker_env
from corelane.cli.supervisor import PARTS_FILE, Supervisor
from corelane.engine.cores import core_slots
from corelane.engine.neuron_chips import CHIPS
from corelane.errors import SetupError, Unavailable
from corelane.lanes import Core
from corelane.settings import Settings, is_loopback, read_settings

#: A fleet of one machine is ready well within this, models included, in seconds.
READY_S = 300

#: Redis answers well within this once it is started, a large append-only file included, in seconds.
REDIS_S = 60

#: A Redis that somebody else runs should answer at once; it is given this long, in seconds.
GIVEN_REDIS_S = 5

#: Workers of Neuron cores start this far apart, in seconds: longer than the runtime takes to claim its core.
NEURON_STAGGER_S = 2

#: Beyond the time of an attempt under way, the deliveries end within this, in seconds.
DELIVERIES_GRACE_S = 5

#: How often Redis or the API may fail at the start before the service gives up: what is wrong then seldom passes.
NEEDED_TRIES = 2

STOP_ORDER = (("api",), ("core",), ("keeper", "deliveries", "flower"), ("redis",))


def serve(
    host: Annotated[str | None, typer.Option(help="Address the API listens on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; the next free one if it is busy.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores to serve; all that this machine has if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for everything kept on disk.")] = None,
    redis: Annotated[str | None, typer.Option(help="Redis URL; without it a server is found and started.")] = None,
    model: Annotated[str | None, typer.Option(help="The default model: name, folder or Hugging Face id.")] = None,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    console = Console(highlight=False, soft_wrap=True)
    with exit_on_error():
        require("all", "fastapi", "hypercorn", "redis", "celery", "flower", "torch", "tokenizers")
        settings = read_settings(host=host, port=port, cores=cores, data_dir=data, redis_url=redis, model=model)
        settings = settings.model_copy(update={"data_dir": settings.data_dir.resolve()})
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with _only_one(settings.data_dir):
            failure = asyncio.run(_serve(settings, console))
    if failure is not None:
        console.print(f"[bold red]corelane[/] [dim]│[/] stopped: {failure}")
        raise typer.Exit(1)
    console.print("[bold]corelane[/] [dim]│[/] stopped")


async def _serve(settings: Settings, console: Console) -> str | None:
    """Run the fleet; why it failed, or None."""
    supervisor = Supervisor(console, settings.data_dir / PARTS_FILE)
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, supervisor.request_stop)
    try:
        settings, password = _choose(settings, supervisor, console)
        settings = await _start_redis(settings, supervisor)
        if not supervisor.is_over:
            await _compile_default(settings, supervisor, console)
        if not supervisor.is_over:
            await _start_fleet(settings, supervisor, password)
            await _until_ready(settings, supervisor)
        if not supervisor.is_over:
            if not await _has_key(settings):
                url = without_password(settings.redis_url)
                supervisor.say(f"no API key yet; make one: corelane keys create --name NAME --redis {url}", "yellow")
            console.print(_banner(settings, password))
            await supervisor.wait()
    finally:
        supervisor.say("stopping: api, workers, keeper, deliveries, flower, redis")
        await supervisor.stop(STOP_ORDER)
    return supervisor.failure


def _choose(settings: Settings, supervisor: Supervisor, console: Console) -> tuple[Settings, str]:
    """Ports that are free, a number of cores that exists, a password for Flower, a log format for this terminal."""
    slots = len(core_slots(settings))
    cores = settings.cores or slots
    if cores > slots:
        devices = settings.target in (*CHIPS, "cuda")
        what = f"this machine has {slots}" if devices else f"this process may use {slots} CPUs"
        raise SetupError(f"--cores {cores}: {what}; choose 1 to {slots}")
    port = free_port(settings.host, settings.port)
    flower_port = free_port(settings.flower_host, settings.flower_port)
    for name, wanted, taken in (("API", settings.port, port), ("Flower", settings.flower_port, flower_port)):
        if wanted not in (0, taken):
            supervisor.say(f"port {wanted} is busy: the {name} takes {taken}", "yellow")
    if settings.requires_keys:
        supervisor.say("the API answers only to those with a key (CORELANE_AUTH)")
    elif not is_loopback(settings.host):
        supervisor.say(
            f"the API listens on {settings.host} and asks nobody for a key (CORELANE_AUTH=off): put a proxy before it",
            "yellow",
        )
    secret = settings.flower_password
    password = secrets.token_urlsafe(12) if secret is None else secret.get_secret_value()
    style = "pretty" if settings.log_format == "auto" and console.is_terminal else settings.log_format
    update = {"cores": cores, "port": port, "flower_port": flower_port, "log_format": style}
    return settings.model_copy(update=update), password


async def _start_redis(settings: Settings, supervisor: Supervisor) -> Settings:
    """Settings with the URL of a Redis that answers: the one given, or one of our own."""
    if "redis_url" in settings.model_fields_set:
        await _until_redis(settings.redis_url, supervisor, GIVEN_REDIS_S)
        return settings
    folder = settings.data_dir / "redis"
    folder.mkdir(exist_ok=True)
    binary = await asyncio.to_thread(choose_server, folder, find_servers())
    with (Path(tempfile.gettempdir()) / f"corelane-redis-{os.getuid()}.lock").open("w") as lock:
        # Two that start at once would find the same port free, and one would end up on the other's Redis.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        port = free_port("127.0.0.1", 6379)
        url = f"redis://127.0.0.1:{port}/0"
        argv = server_argv(binary.path, folder, port)
        up = redis_probe(url)
        comment = partial(comment_on, folder=folder)
        await supervisor.start(
            Part("redis", argv, settings.environment(), first_tries=NEEDED_TRIES, is_up=up, comment=comment)
        )
        await _until_redis(url, supervisor, REDIS_S)
    if not supervisor.is_over:
        note_writer(folder, binary.server)
        supervisor.say(f"{binary.server} keeps its data in {folder}")
    return settings.model_copy(update={"redis_url": url})


async def _until_redis(url: str, supervisor: Supervisor, seconds: int) -> None:
    """Wait for Redis to answer; raises SetupError if it does not within ``seconds``."""
    from corelane.store.connections import Link

    reason = ""
    for _ in range(seconds * 5):
        try:
            await asyncio.to_thread(Link(url, timeout_s=2), "PING")
            return
        except Unavailable as error:
            reason = error.detail
        if await supervisor.wait(0.2):
            return
    raise SetupError(f"no Redis at {without_password(url)}: {reason}")


async def _compile_default(settings: Settings, supervisor: Supervisor, console: Console) -> None:
    """Compile the default model unless its artifact is there."""
    name = model_name(settings.model)
    if settings.target == "null" or is_compiled(settings, name, settings.target):
        return
    supervisor.say(f"compiling {name}, once")
    argv = [sys.executable, "-m", "compile", settings.model, "--target", settings.target]
    process = await asyncio.create_subprocess_exec(*argv, env=settings.environment())
    stop = asyncio.create_task(supervisor.wait())
    done = asyncio.create_task(process.wait())
    await asyncio.wait((stop, done), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if process.returncode is None:
        process.terminate()
        await process.wait()
    elif process.returncode != 0:
        raise SetupError(f"the default model {settings.model} could not be compiled; see above")
    console.print()


async def _start_fleet(settings: Settings, supervisor: Supervisor, password: str) -> None:
    env = settings.environment(core=None)
    corelane = [sys.executable, "-m", "corelane"]
    await supervisor.start(Part("keeper", keeper_argv(settings.core_host), env, needed=False))
    for place, slot in enumerate(core_slots(settings)[: settings.cores]):
        # Workers of one device that start at the same moment may find each other's cores busy.
        if place and await supervisor.wait(stagger_s(settings)):
            return
        argv = [*corelane, "worker", "--core", str(slot.index)]
        worker = worker_env(settings, slot)
        up = core_probe(settings.redis_url, Core(settings.core_host, slot.index))
        await supervisor.start(Part(f"core{slot.index}", argv, worker, grace_s=30, is_up=up))
    grace_s = settings.webhook_timeout_s + DELIVERIES_GRACE_S
    argv = deliveries_argv(settings.core_host)
    await supervisor.start(Part("deliveries", argv, env, needed=False, grace_s=grace_s))
    up = http_probe(_reachable(settings.host), settings.port)
    await supervisor.start(Part("api", [*corelane, "api"], env, grace_s=15, first_tries=NEEDED_TRIES, is_up=up))
    await supervisor.start(Part("flower", flower_argv(settings), flower_env(settings, password), needed=False))


def stagger_s(settings: Settings) -> float:
    """Time between the starts of two workers, in seconds."""
    if settings.stagger_s is not None:
        return settings.stagger_s
    return NEURON_STAGGER_S if settings.target in CHIPS else 0


async def _until_ready(settings: Settings, supervisor: Supervisor) -> None:
    """Wait until a question would be answered and every core lives, but for those that are out of service."""
    from corelane.client import Client
    from corelane.store.async_link import AsyncLink
    from corelane.store.fleet import Fleet

    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    waiting: list[str] = []
    # The cores are read from Redis: the API would ask for a key.
    link = AsyncLink(settings.redis_url)
    with Client(_url(settings), max_retries=0) as client:
        while not supervisor.is_over:
            with suppress(Unavailable):
                cores = [core for core in await Fleet(link).cores() if "state" in core]
                states = [core["state"] for core in cores]
                waiting = [core["reasons"] for core in cores if core["state"] == "waiting"]
                out = states.count("out_of_service")
                up = sum(state in ("idle", "busy") for state in states)
                if up and up + out >= (settings.cores or 1) and await asyncio.to_thread(client.ready):
                    break
                if "failed" in states:
                    supervisor.fail("a core could not load its model; its reason stands above")
                elif out >= (settings.cores or 1):
                    supervisor.fail("every core is out of service; the reasons stand above")
            if loop.time() > deadline:
                supervisor.fail(f"not ready after {READY_S} s{''.join(f'; {reason}' for reason in waiting)}")
            await supervisor.wait(0.2)
    await link.close()


async def _has_key(settings: Settings) -> bool:
    """Whether anybody could ask something: keys are not required, or there is one."""
    from corelane.store.async_link import AsyncLink
    from corelane.store.keys import KeyFinder

    if not settings.requires_keys:
        return True
    link = AsyncLink(settings.redis_url)
    try:
        return await KeyFinder(link).any_active()
    finally:
        await link.close()


def _banner(settings: Settings, password: str) -> Panel:
    url = _url(settings)
    flower = f"http://{settings.flower_host}:{settings.flower_port}"
    key = " --api-key clk_…" if settings.requires_keys else ""
    return Panel.fit(
        f"[bold green]ready[/]: {settings.cores} core{'s' if settings.cores != 1 else ''}, {settings.model}\n\n"
        f"API      {url}\n"
        f"Docs     {url}/docs\n"
        f"Flower   {flower}   user [bold]{settings.flower_user}[/], password [bold]{password}[/]\n"
        f"Redis    {without_password(settings.redis_url)}\n\n"
        f'Try      corelane ask "Who wrote it?" --context "Ada wrote it." --url {url}{key}\n'
        "Stop     Ctrl-C",
        title="Corelane",
    )


def without_password(url: str) -> str:
    """A Redis URL that may be shown."""
    return re.sub(r"(?<=://)([^:@/]*):[^@/]*@", r"\1:***@", url)


def _url(settings: Settings) -> str:
    host = _reachable(settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _reachable(host: str) -> str:
    """An address at which what listens on ``host`` is reached from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared only


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the data folder; raises SetupError if another fleet does."""
    with (folder / "serve.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SetupError(
                f"another `corelane serve` uses {folder}; stop it, or choose a folder with --data"
            ) from None
        yield
