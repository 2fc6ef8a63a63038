"""``corelane serve``: a whole fleet on one machine, or the roles that this host has in a larger one.

Finds or starts Redis, compiles the default model if needed (``default_model.py``), starts the parts (``own_fleet.py``),
waits until they are ready, and shows where everything is. Stops in order too: first the API, so that nothing new is
accepted; then the workers, which finish their batch; then the keeper, the deliveries and Flower; Redis last, with all
data on disk.
"""

import asyncio
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from corelane.cli.default_model import with_default_model
from corelane.cli.folders import PARTS_FILE, only_one, places
from corelane.cli.own_fleet import STOP_ORDER, find_redis, start_first, start_others, start_redis
from corelane.cli.redis_users import told_of_password
from corelane.cli.roles import core_range, sharing_cores
from corelane.cli.serve_output import JsonOutput, PrettyOutput, ServeOutput, as_json, entry, ready_page
from corelane.cli.serve_ports import ServicePorts, choose_ports
from corelane.cli.serve_ready import until_ready
from corelane.cli.serve_roles import check_options, choose_roles, in_order, require_packages
from corelane.cli.supervisor import Supervisor
from corelane.cli.telling import tell_troubles
from corelane.cli.webhook_secret import kept_secret, make_secret
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.cores import core_slots
from corelane.errors import CorelaneError, SetupError
from corelane.plugin import installed
from corelane.settings import Settings, read_settings
from corelane.settings.rules import without_password

#: Longest time that workers and API come up alone, before the other parts start, in seconds.
FIRST_S = 10


def serve(
    host: Annotated[str | None, typer.Option(help="Address the API listens on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; if not given, the first free from 8000.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores to serve; all that this machine has if not given.")] = None,
    min_cores: Annotated[
        int | None, typer.Option(help="Least cores that run; with 0 the first question starts one.")
    ] = None,
    max_cores: Annotated[
        int | None, typer.Option(help="Most cores that run: as many as the open work asks for; all if not given.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for everything kept on disk.")] = None,
    redis: Annotated[
        str | None,
        typer.Option(help="Redis URL; without it a server is found and started.", callback=told_of_password),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The default model: name, folder or Hugging Face id.")] = None,
    flower_port: Annotated[
        int | None, typer.Option(help="Port of Flower; if not given, the first free from 5555.")
    ] = None,
    flower: Annotated[
        bool, typer.Option("--flower/--no-flower", help="Whether to start Flower, a page about the workers.")
    ] = True,
    roles: Annotated[
        str | None,
        typer.Option(
            help="What this host runs, comma-separated: api, worker (all its cores), keeper, deliveries, flower, "
            "redis; all of them if not given."
        ),
    ] = None,
) -> None:
    """Start everything on this machine, or the given roles, and keep it running until Ctrl-C."""
    console = Console(highlight=False, soft_wrap=True)
    given = {"host": host, "port": port, "cores": cores, "min_cores": min_cores, "max_cores": max_cores}
    given |= {"model": model, "flower_port": flower_port}
    settings = read_settings(**given, data_dir=data, redis_url=redis)
    has_redis = "redis_url" in settings.model_fields_set
    chosen = choose_roles(roles, has_redis=has_redis, has_flower=flower)
    check_options(given, chosen if flower else chosen | {"flower"})
    require_packages(chosen)
    is_pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and console.is_terminal)
    output: ServeOutput = PrettyOutput(console) if is_pretty else JsonOutput()
    update = {"data_dir": settings.data_dir.resolve(), "log_format": "pretty" if is_pretty else "json"}
    settings = settings.model_copy(update=update)
    try:
        with only_one(settings.data_dir):
            failure = asyncio.run(_serve(settings, output, chosen))
    except CorelaneError as error:
        if is_pretty:
            raise
        typer.echo(as_json(entry(error.detail, "error")), err=True)
        raise typer.Exit(1) from None
    if failure is not None:
        output.say(f"stopped: {failure}", "error")
        raise typer.Exit(1)
    output.say("stopped")


async def _serve(settings: Settings, output: ServeOutput, roles: frozenset[str]) -> str | None:
    """Run the parts of this host; return why they failed, or None."""
    supervisor = Supervisor(output, settings.data_dir / PARTS_FILE)
    supervisor.note(roles=in_order(roles), **places(settings))
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, supervisor.request_stop)
    if "worker" in roles:
        settings = _count_cores(settings)
    settings = _sign_webhooks(settings, supervisor)
    with choose_ports(settings, supervisor, roles) as (chosen, ports):
        try:
            await _run(chosen, supervisor, ports, roles)
        except SetupError as error:
            if not supervisor.has_begun:
                raise
            supervisor.fail(error.detail)
        finally:
            if ports.api is not None:
                ports.api.close()
            if supervisor.has_begun:
                reason = f" because {supervisor.failure}" if supervisor.failure else ""
                supervisor.say(f"stopping{reason}: {', '.join(_stopped(roles))}")
            await supervisor.stop(STOP_ORDER)
    return supervisor.failure


def _stopped(roles: frozenset[str]) -> list[str]:
    """Return the parts of these roles in the order in which they are stopped."""
    names = {"core": "worker"}
    order = [names.get(name, name) for group in STOP_ORDER for name in group]
    return ["workers" if role == "worker" else role for role in order if role in roles]


async def _run(settings: Settings, supervisor: Supervisor, ports: ServicePorts, roles: frozenset[str]) -> None:
    """Start everything, announce it, and wait for the end."""
    if "redis" in roles:
        settings = await start_redis(settings, supervisor, ports.redis)
    else:
        await find_redis(settings, supervisor)
    start = partial(start_first, settings, supervisor, ports, roles)
    if "worker" in roles and not supervisor.is_over:
        await with_default_model(settings, supervisor, start)
    elif not supervisor.is_over:
        await start()
    if supervisor.is_over:
        return
    beside = [asyncio.create_task(tell_troubles(settings, supervisor), name="tell_troubles")]
    try:
        if "worker" in roles and not supervisor.is_over:
            for plugin in installed():
                own = plugin.serve_tasks(settings, supervisor)
                beside += [asyncio.create_task(task, name=plugin.name) for task in own]
        await _run_fleet(settings, supervisor, ports, roles)
    finally:
        supervisor.request_stop()
        await asyncio.gather(*beside)


async def _run_fleet(settings: Settings, supervisor: Supervisor, ports: ServicePorts, roles: frozenset[str]) -> None:
    """Wait until the parts are ready, announce what this host offers, and wait for the end.

    What the first answer does not take starts after it could be given, or after a while.
    """
    ready = asyncio.create_task(until_ready(settings, supervisor, roles), name="until_ready")
    try:
        if "worker" in roles:
            await asyncio.wait((ready,), timeout=FIRST_S)
        if not supervisor.is_over:
            await start_others(settings, supervisor, ports, roles)
        await ready
    finally:
        ready.cancel()
    if supervisor.is_over:
        return
    if ports.flower is not None:
        settings = settings.model_copy(update={"flower_port": ports.flower.port})
    supervisor.note(is_ready=True)
    if "api" in roles and settings.requires_keys and not await asyncio.to_thread(_has_key, settings):
        place = f"--data {settings.data_dir}" if "redis" in roles else f"--redis {without_password(settings.redis_url)}"
        supervisor.say(f"no API key yet; make one: corelane keys create --name NAME {place}", "warning")
    supervisor.output.announce(ready_page(settings, ports.password, roles))
    await supervisor.wait()


def _count_cores(settings: Settings) -> Settings:
    """Return settings with the number of cores, and of those that share the host's price.

    Raise SetupError if this machine has fewer or the least are more than the most, and SettingsError for wrong prices.
    """
    slots = len(core_slots(settings))
    cores = settings.cores or slots
    if cores > slots:
        devices = settings.target in (*CHIPS, "cuda")
        what = f"this machine has {slots}" if devices else f"this process may use {slots} CPUs"
        raise SetupError(f"--cores {cores}: {what}; choose 1 to {slots}")
    settings = settings.model_copy(update={"cores": cores})
    core_range(settings)
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
        if (settings.data_dir / "redis").exists():
            supervisor.say(
                f"{settings.data_dir} has stored jobs and no secret that signs webhooks, so a new one was made: "
                "receivers refuse webhooks until they have it. Put the former one back, or give them the new one "
                "(`corelane webhooks secret`)",
                "warning",
            )
        else:
            supervisor.say("made a secret that signs webhooks; it is kept in the data folder")
    return settings.model_copy(update={"webhook_secret": secret})


def _has_key(settings: Settings) -> bool:
    """Return whether there is a key with which a caller could ask."""
    from corelane.store.api_keys import ApiKeyFinder
    from corelane.store.link.blocking import Link

    with closing(Link(settings.redis_url)) as link:
        return link.read(lambda read: ApiKeyFinder(read).any_active())
