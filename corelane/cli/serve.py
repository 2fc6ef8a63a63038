"""``corelane serve``: a whole fleet on one machine.

Finds or starts Redis, compiles the default model if needed, starts the parts (``own_fleet.py``), waits until a question
would be answered, and shows where everything is. Stops in order too: first the API, so that nothing new is accepted;
then the workers, which finish their batch; then the keeper, the deliveries and Flower; Redis last, with all data on
disk.
"""

import asyncio
import fcntl
import secrets
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from corelane.cli.errors import require
from corelane.cli.own_fleet import REDIS_PORT, STOP_ORDER, ServicePorts, compile_default, start_fleet, start_redis
from corelane.cli.ports import PortClaim, hold_port
from corelane.cli.roles import sharing_cores
from corelane.cli.serve_output import JsonOutput, PrettyOutput, ServeOutput, as_json, entry, ready_page
from corelane.cli.supervisor import PARTS_FILE, Supervisor
from corelane.cli.telling import tell_troubles
from corelane.cli.webhook_secret import kept_secret, make_secret
from corelane.domain.addresses import local_url
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.cores import core_slots
from corelane.errors import CorelaneError, SetupError, Unavailable
from corelane.settings import Settings, is_loopback, read_settings

#: A fleet of one machine is ready well within this, with its models loaded, in seconds.
READY_S = 300

#: A ready API answers at once, in seconds.
ASK_S = 5


def serve(
    host: Annotated[str | None, typer.Option(help="Address the API listens on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; the next free one if it is busy.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores to serve; all that this machine has if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for everything kept on disk.")] = None,
    redis: Annotated[str | None, typer.Option(help="Redis URL; without it a server is found and started.")] = None,
    model: Annotated[str | None, typer.Option(help="The default model: name, folder or Hugging Face id.")] = None,
    flower_port: Annotated[int | None, typer.Option(help="Port of Flower; the next free one if it is busy.")] = None,
    flower: Annotated[
        bool, typer.Option("--flower/--no-flower", help="Whether to start Flower, a page about the workers.")
    ] = True,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    console = Console(highlight=False, soft_wrap=True)
    require("all", "fastapi", "hypercorn", "redis", "celery", "flower", "torch", "tokenizers")
    given = {"host": host, "port": port, "cores": cores, "data_dir": data, "redis_url": redis, "model": model}
    settings = read_settings(**given, flower_port=flower_port)
    is_pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and console.is_terminal)
    output: ServeOutput = PrettyOutput(console) if is_pretty else JsonOutput()
    update = {"data_dir": settings.data_dir.resolve(), "log_format": "pretty" if is_pretty else "json"}
    settings = settings.model_copy(update=update)
    try:
        with _only_one(settings.data_dir):
            failure = asyncio.run(_serve(settings, output, has_flower=flower))
    except CorelaneError as error:
        if is_pretty:
            raise
        typer.echo(as_json(entry(error.detail, "error")), err=True)
        raise typer.Exit(1) from None
    if failure is not None:
        output.say(f"stopped: {failure}", "error")
        raise typer.Exit(1)
    output.say("stopped")


async def _serve(settings: Settings, output: ServeOutput, *, has_flower: bool) -> str | None:
    """Run the fleet; return why it failed, or None."""
    supervisor = Supervisor(output, settings.data_dir / PARTS_FILE)
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, supervisor.request_stop)
    settings = _sign_webhooks(_count_cores(settings), supervisor)
    with closing(hold_port(settings.host, settings.port)) as listening:
        settings, ports = _choose_ports(settings, supervisor, listening, has_flower=has_flower)
        try:
            await _run(settings, supervisor, ports)
        except SetupError as error:
            if not supervisor.has_begun:
                raise
            supervisor.fail(error.detail)
        finally:
            listening.close()
            if supervisor.has_begun:
                reason = f" because {supervisor.failure}" if supervisor.failure else ""
                supervisor.say(f"stopping{reason}: api, workers, keeper, deliveries, flower, redis")
            await supervisor.stop(STOP_ORDER)
    return supervisor.failure


async def _run(settings: Settings, supervisor: Supervisor, ports: ServicePorts) -> None:
    """Start everything, announce it, and wait for the end."""
    settings = await start_redis(settings, supervisor, ports.redis)
    if not supervisor.is_over:
        await compile_default(settings, supervisor)
    if supervisor.is_over:
        return
    telling = asyncio.create_task(tell_troubles(settings, supervisor), name="tell_troubles")
    try:
        await _run_fleet(settings, supervisor, ports)
    finally:
        supervisor.request_stop()
        await telling


async def _run_fleet(settings: Settings, supervisor: Supervisor, ports: ServicePorts) -> None:
    """Start all parts but Redis, announce the service, and wait for the end."""
    await start_fleet(settings, supervisor, ports)
    await _until_ready(settings, supervisor)
    if supervisor.is_over:
        return
    if ports.flower is not None:
        settings = settings.model_copy(update={"flower_port": ports.flower.port})
    supervisor.note(is_ready=True)
    if settings.requires_keys and not await asyncio.to_thread(_has_key, settings):
        make = f"corelane keys create --name NAME --data {settings.data_dir}"
        supervisor.say(f"no API key yet; make one: {make}", "warning")
    supervisor.output.announce(ready_page(settings, ports.password, has_flower=ports.flower is not None))
    await supervisor.wait()


def _count_cores(settings: Settings) -> Settings:
    """Return settings with the number of cores, and of those that share the host's price.

    Raise SetupError if this machine has fewer, and SettingsError for wrong prices.
    """
    slots = len(core_slots(settings))
    cores = settings.cores or slots
    if cores > slots:
        devices = settings.target in (*CHIPS, "cuda")
        what = f"this machine has {slots}" if devices else f"this process may use {slots} CPUs"
        raise SetupError(f"--cores {cores}: {what}; choose 1 to {slots}")
    settings = settings.model_copy(update={"cores": cores})
    return settings.model_copy(update={"price_cores": sharing_cores(settings)})


def _sign_webhooks(settings: Settings, supervisor: Supervisor) -> Settings:
    """Return settings with a secret for webhooks: the one set, the one kept, or a new one.

    None is made for a Redis that was given: other services may share it, and all must sign with the same secret.
    """
    if settings.webhook_secret is not None:
        return settings
    secret: SecretStr | None = kept_secret(settings.data_dir)
    if secret is None and "redis_url" not in settings.model_fields_set:
        secret = make_secret(settings.data_dir)
        supervisor.say("made a secret that signs webhooks; it is kept in the data folder")
    return settings.model_copy(update={"webhook_secret": secret})


def _choose_ports(
    settings: Settings, supervisor: Supervisor, listening: socket, *, has_flower: bool
) -> tuple[Settings, ServicePorts]:
    """Return settings with the ports that were free, and Flower's password."""
    port = int(listening.getsockname()[1])
    if settings.port not in (0, port):
        supervisor.say(f"port {settings.port} is busy: the API listens on {port}", "warning")
    if settings.requires_keys:
        supervisor.say("the API requires a key (CORELANE_AUTH)")
    elif not is_loopback(settings.host):
        supervisor.say(
            f"the API listens on {settings.host} and requires no key (CORELANE_AUTH=off): put a proxy in front of it",
            "warning",
        )
    secret = settings.flower_password
    password = secrets.token_urlsafe(12) if secret is None else secret.get_secret_value()
    settings = settings.model_copy(update={"port": port})
    supervisor.note(api=local_url(settings.host, port))
    redis = PortClaim("127.0.0.1", REDIS_PORT, "--redis")
    if not has_flower:
        return settings, ServicePorts(listening, redis, None, password)
    claim = PortClaim(settings.flower_host, settings.flower_port, "--flower-port")
    taken = claim.choose()
    if settings.flower_port not in (0, taken):
        supervisor.say(f"port {settings.flower_port} is busy: Flower listens on {taken}", "warning")
    settings = settings.model_copy(update={"flower_port": taken})
    supervisor.note(flower=local_url(settings.flower_host, taken))
    return settings, ServicePorts(listening, redis, claim, password)


async def _until_ready(settings: Settings, supervisor: Supervisor) -> None:
    """Wait until a question would be answered and every core is up or out of service."""
    from corelane.client import Client
    from corelane.store.fleet import Fleet
    from corelane.store.link.link import AsyncLink

    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    waiting: list[str] = []
    # The cores are read from Redis: the API would ask for a key.
    link = AsyncLink(settings.redis_url)
    with Client(local_url(settings.host, settings.port), max_retries=0, timeout_s=ASK_S) as client:
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
                    supervisor.fail("a core could not load its model; the reason is shown above")
                elif out >= (settings.cores or 1):
                    supervisor.fail("every core is out of service; the reasons are shown above")
            if loop.time() > deadline:
                supervisor.fail(f"not ready after {READY_S} s{''.join(f'; {reason}' for reason in waiting)}")
            await supervisor.wait(0.2)
    await link.close()


def _has_key(settings: Settings) -> bool:
    """Return whether there is a key with which a caller could ask."""
    from corelane.store.api_keys import ApiKeyFinder
    from corelane.store.link.blocking import Link

    with closing(Link(settings.redis_url)) as link:
        return link.read(lambda read: ApiKeyFinder(read).any_active())


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the data folder; raise SetupError if another fleet does, or if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "serve.lock").open("w")
    except (FileExistsError, NotADirectoryError):
        raise SetupError(f"--data {folder}: this is a file, or is below one; give a folder") from None
    except OSError as error:
        raise SetupError(f"--data {folder}: it cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SetupError(f"another `corelane serve` uses {folder}; stop it, or name a folder with --data") from None
        yield
