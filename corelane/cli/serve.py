"""``corelane serve``: a whole fleet on one machine, or this host's roles in a larger fleet.

Finds or starts Redis, compiles the default model if needed (``default_model.py``), starts the parts (``own_fleet.py``),
waits until they are ready, and shows where everything is. Stops in order too: first the API, so that nothing new is
accepted; then the workers, which finish their batch; then the keeper, the deliveries and Flower; Redis last, with all
data on disk.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from corelane.cli.default_model import compile_default_model
from corelane.cli.errors import require
from corelane.cli.folders import PARTS_FILE, only_one, places
from corelane.cli.own_fleet import STOP_ORDER, OwnFleet
from corelane.cli.redis_users import warn_of_password
from corelane.cli.roles import NEEDS, require_role
from corelane.cli.serve_output import JsonOutput, PrefixedOutput, ServeOutput, ready_facts
from corelane.cli.supervisor import Supervisor
from corelane.cli.webhook_secrets import kept_secret, make_secret
from corelane.engine.backends.plugin import HOST_TARGETS
from corelane.engine.cores import core_slots
from corelane.errors import CorelaneError, SetupError
from corelane.settings import Settings, read_settings
from corelane.settings.rules import without_password

#: The roles, in the order in which they start. ``worker`` stands for the workers of all cores of the host.
ROLES = ("redis", "keeper", "worker", "deliveries", "api", "flower")

#: The role that each option belongs to.
ROLE_OF_OPTION = {
    "host": "api",
    "port": "api",
    "cores": "worker",
    "model": "worker",
    "handler": "worker",
    "flower_port": "flower",
    "redis_port": "redis",
}

#: Longest time for which workers and API start alone, before the other parts, in seconds.
FIRST_S = 10

#: Time between two reports of health issues, in seconds. Readers accept a report for
#: ``corelane.store.health_issues.BELIEVED_MS``.
REPORT_S = 3.0


def serve(
    host: Annotated[str | None, typer.Option(help="Address the API listens on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; 8000 if not given.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores to serve; all that this machine has if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for everything kept on disk.")] = None,
    redis: Annotated[
        str | None,
        typer.Option(help="Redis URL; without it a server is found and started.", callback=warn_of_password),
    ] = None,
    redis_port: Annotated[int | None, typer.Option(help="Port of a Redis started here; 6379 if not given.")] = None,
    model: Annotated[str | None, typer.Option(help="The default model: name, folder or Hugging Face id.")] = None,
    handlers: Annotated[
        list[str] | None,
        typer.Option("--handler", help="A Python class to serve too, as package.module:Class; see docs/handlers.md."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Reload the class when its files change.")] = False,
    flower_port: Annotated[int | None, typer.Option(help="Port of Flower; 5555 if not given.")] = None,
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
    given = {"host": host, "port": port, "cores": cores, "model": model}
    given |= {"flower_port": flower_port, "redis_port": redis_port}
    settings = read_settings(**given, data_dir=data, redis_url=redis)
    has_redis = "redis_url" in settings.model_fields_set
    chosen = choose_roles(roles, has_redis=has_redis, has_flower=flower)
    handler = handlers[0] if handlers else None
    if handlers and len(handlers) > 1:
        raise SetupError("--handler serves one class: package and load the others (`corelane models package`)")
    check_options(given | {"handler": handler}, chosen if flower else chosen | {"flower"})
    if handler is not None:
        from corelane.cli.served_class import allow_class

        settings = allow_class(settings, handler, reload=reload)
    elif reload:
        raise SetupError("--reload is of no use without --handler")
    require_packages(chosen)
    is_pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and console.is_terminal)
    output: ServeOutput = PrefixedOutput(console) if is_pretty else JsonOutput()
    update = {"data_dir": settings.data_dir.resolve(), "log_format": "pretty" if is_pretty else "json"}
    settings = settings.model_copy(update=update)
    with only_one(settings.data_dir):
        failure = asyncio.run(_serve(settings, output, chosen, handler, reload=reload))
    if failure is not None:
        output.say(f"stopped: {failure}", "error")
        raise typer.Exit(1)
    output.say("stopped")


async def _serve(
    settings: Settings, output: ServeOutput, roles: frozenset[str], handler: str | None, *, reload: bool
) -> str | None:
    """Run the parts of this host; return the reason if they failed, or None."""
    supervisor = Supervisor(output.say, output.show, settings.data_dir / PARTS_FILE)
    supervisor.note(roles=in_order(roles), **places(settings))
    supervisor.stop_on_signals()
    if "worker" in roles:
        settings = _count_cores(settings)
    fleet = OwnFleet(_sign_webhooks(settings, supervisor, roles), supervisor, roles)
    try:
        fleet.take_ports()
        await _run(fleet, output, handler, reload=reload)
    except SetupError as error:
        if not supervisor.has_begun:
            raise
        supervisor.fail(error.detail)
    finally:
        fleet.close()
        if supervisor.has_begun:
            reason = f" because {supervisor.failure}" if supervisor.failure else ""
            order = ["worker" if prefix == "core" else prefix for group in STOP_ORDER for prefix in group]
            stopped = ["workers" if role == "worker" else role for role in order if role in roles]
            supervisor.say(f"stopping{reason}: {', '.join(stopped)}")
        await supervisor.stop(STOP_ORDER)
    return supervisor.failure


async def _run(fleet: OwnFleet, output: ServeOutput, handler: str | None, *, reload: bool) -> None:
    """Start everything, announce it, and wait for the end."""
    supervisor, has_workers = fleet.supervisor, "worker" in fleet.roles
    await (fleet.start_redis() if "redis" in fleet.roles else fleet.find_redis())
    if has_workers and not supervisor.is_over:
        await compile_default_model(fleet.settings, supervisor)
    if not supervisor.is_over:
        await fleet.start_first()
    if supervisor.is_over:
        return
    reporting = asyncio.create_task(_report_issues(fleet.settings, supervisor))
    ready = asyncio.create_task(fleet.until_ready(), name="until_ready")
    following: asyncio.Task[None] | None = None
    try:
        # The parts that the first result does not need start once it is possible, or after a while.
        if has_workers:
            await asyncio.wait((ready,), timeout=FIRST_S)
        if not supervisor.is_over:
            await fleet.start_others()
        await ready
        if handler is not None and not supervisor.is_over:
            from corelane.cli.served_class import serve_class

            following = await serve_class(handler, fleet.settings, supervisor, reload=reload)
        if not supervisor.is_over:
            await _announce(fleet, output)
            await supervisor.wait()
    finally:
        ready.cancel()
        if following is not None:
            following.cancel()
        supervisor.request_stop()
        await reporting


async def _announce(fleet: OwnFleet, output: ServeOutput) -> None:
    """Print what this host offers, now that it is ready."""
    settings, supervisor, roles = fleet.settings, fleet.supervisor, fleet.roles
    supervisor.note(is_ready=True)
    if "api" in roles and settings.requires_keys and not await asyncio.to_thread(_has_key, settings):
        place = f"--data {settings.data_dir}" if "redis" in roles else f"--redis {without_password(settings.redis_url)}"
        supervisor.say(f"no API key yet; make one: corelane keys create --name NAME {place}", "warning")
    output.announce(ready_facts(settings, fleet.flower_password, roles))


async def _report_issues(settings: Settings, supervisor: Supervisor) -> None:
    """Report issues of the parts through Redis, for API, console and ``doctor``, until the service stops."""
    from redis.exceptions import RedisError

    from corelane.store.health_issues import PartReport
    from corelane.store.link.link import AsyncLink

    link = AsyncLink(settings.redis_url)
    report = PartReport(link, f"{settings.core_host}#{os.getpid()}")
    is_last = False
    try:
        while not is_last:
            is_last = supervisor.is_over
            # `serve` itself shows failures of Redis, and reports other issues again.
            with suppress(CorelaneError, RedisError, TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await report.tell({} if is_last else supervisor.health_issues())
            await supervisor.wait(REPORT_S)
    finally:
        with suppress(CorelaneError, RedisError, TimeoutError):
            await link.close()


def choose_roles(wanted: str | None, *, has_redis: bool, has_flower: bool = True) -> frozenset[str]:
    """Return the roles of this host: those wanted, or all. ``has_redis`` says that a Redis URL is given.

    Raise SetupError for an unknown role, or if it is unclear which Redis is meant.
    """
    words = ROLES if wanted is None else [word.strip() for word in wanted.split(",") if word.strip()]
    if not words:
        raise SetupError(f"--roles names no role; choose among {', '.join(ROLES)}")
    if unknown := [word for word in words if word not in ROLES]:
        raise SetupError(f"{unknown[0]!r} is no role; choose among {', '.join(ROLES)}")
    roles = frozenset(words) if has_flower else frozenset(words) - {"flower"}
    if wanted is None:
        return roles - {"redis"} if has_redis else roles
    if has_redis and "redis" in roles:
        raise SetupError("the role redis starts a Redis here, and the URL of another one is set; drop one of the two")
    if not has_redis and "redis" not in roles:
        raise SetupError(
            f"--roles {wanted} starts no Redis: say where it is with --redis URL or CORELANE_REDIS_URL, "
            "or add the role redis"
        )
    return roles


def check_options(given: Mapping[str, object], roles: frozenset[str]) -> None:
    """Raise SetupError if an option was given for a role that this host does not have."""
    for name, role in ROLE_OF_OPTION.items():
        if given.get(name) is not None and role not in roles:
            raise SetupError(f"--{name.replace('_', '-')} is of no use without the role {role}")


def require_packages(roles: frozenset[str]) -> None:
    """Raise SetupError naming the extra to install if a module of a role is missing."""
    if roles >= frozenset(ROLES) - {"redis"}:
        require("all", *sorted({module for _, modules in NEEDS.values() for module in modules}))
    for role in in_order(roles):
        require_role(role)


def in_order(roles: Iterable[str]) -> list[str]:
    """Return the roles in the order in which they start."""
    return sorted(roles, key=ROLES.index)


def _count_cores(settings: Settings) -> Settings:
    """Return settings with the number of cores; raise SetupError if this machine has too few."""
    slots = len(core_slots(settings))
    cores = settings.cores or slots
    if cores > slots:
        on_host = settings.target in HOST_TARGETS
        what = f"this process may use {slots} CPUs" if on_host else f"this machine has {slots}"
        raise SetupError(f"--cores {cores}: {what}; choose 1 to {slots}")
    return settings.model_copy(update={"cores": cores})


def _sign_webhooks(settings: Settings, supervisor: Supervisor, roles: frozenset[str]) -> Settings:
    """Return settings with a secret for webhooks: the one in the settings, the stored one, or a new one.

    No secret is made without a Redis of this host's own: services that share one must sign with the same secret.
    """
    if settings.webhook_secret is not None:
        return settings
    secret: SecretStr | None = kept_secret(settings.data_dir)
    if secret is None and "redis" in roles:
        secret = make_secret(settings.data_dir)
        if (settings.data_dir / "redis").exists():
            supervisor.say(
                f"{settings.data_dir} has stored jobs and no secret that signs webhooks, so a new one was made: "
                "receivers refuse webhooks until they have it. Put the former one back, or give them the new one "
                "(`corelane webhooks secrets show`)",
                "warning",
            )
        else:
            supervisor.say("made a secret that signs webhooks; it is kept in the data folder")
    return settings.model_copy(update={"webhook_secret": secret})


def _has_key(settings: Settings) -> bool:
    """Return whether there is a key that a caller could use."""
    from corelane.store.api_keys import ApiKeyFinder
    from corelane.store.link.blocking import Link

    with closing(Link(settings.redis_url)) as link:
        return link.read(lambda read: ApiKeyFinder(read).any_active())
