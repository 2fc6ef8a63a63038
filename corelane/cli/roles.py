"""The commands that become one process of the fleet: api, worker, keeper, deliveries, flower.

Each replaces this process. Before that, it sets the environment that the role needs before its libraries load: CPU
affinity, thread counts, the settings.
"""

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.errors import require
from corelane.cli.ports import require_port
from corelane.domain.dispatch import DELIVERY_QUEUE, KEEPER_QUEUE, Core
from corelane.engine.cores import CoreSlot, core_slot, only_slot, pin
from corelane.errors import SetupError
from corelane.settings import Settings, read_settings

if TYPE_CHECKING:
    from hypercorn.config import Config

#: The user name for Flower.
FLOWER_USER = "corelane"

#: The extra that installs what a role needs, and the modules that must exist.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "redis": ("api", ("redis",)),
    "keeper": ("api", ("celery", "redis")),
    "worker": ("worker", ("celery", "torch", "tokenizers")),
    "deliveries": ("api", ("celery", "redis", "ssrfguard")),
    "api": ("api", ("fastapi", "hypercorn", "redis", "celery")),
    "flower": ("worker", ("celery", "flower")),
}

#: Longest time that a stop waits for requests in flight, in seconds; clients repeat requests that take longer.
API_GRACE_S = 10

#: Longest wait for Redis during the start, in seconds.
SCHEMA_TIMEOUT_S = 2

#: Tasks that Flower keeps, a drain each; how often it writes them to disk, which takes half a second, in milliseconds;
#: and when it forgets a worker that no longer exists, in seconds (the service forgets the core then, too).
FLOWER_TASKS, FLOWER_SAVE_MS, FLOWER_FORGET_S = 10_000, 60_000, 900

#: The beginning of Celery's warning for root: 8 lines from each part about pickled messages. Ours are JSON.
ROOT_WARNING = "You're running the worker with superuser privileges"


def require_role(role: str) -> None:
    """Raise SetupError naming the extra to install if a module of this role is missing."""
    extra, modules = NEEDS[role]
    require(extra, *modules)


def celery_argv(*arguments: str) -> list[str]:
    """Return a Celery command of this interpreter."""
    return [sys.executable, "-W", f"ignore:{ROOT_WARNING}", "-m", "celery", "--quiet", "-A", "workers.app", *arguments]


def node_argv(node: str, queue: str, pool: str = "threads", *more: str) -> list[str]:
    """Return the command of a Celery node that reads one queue, without gossip."""
    return celery_argv(
        *("worker", "-n", node, "-Q", queue, "-P", pool, "-c", "1", *more),
        *("--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def worker_argv(core: Core) -> list[str]:
    """Return the command of one core's worker: one child, its own queue, and heartbeats for Flower."""
    return node_argv(core.node, core.queue, "prefork", "-E")


def keeper_argv(host: str) -> list[str]:
    """Return the command of the keeper, which sweeps, feeds jobs and runs batches in its own loops."""
    return node_argv(f"keeper@{host}", KEEPER_QUEUE)


def deliveries_argv(host: str) -> list[str]:
    """Return the command of the webhook sender: its own process, so that slow receivers delay nothing else."""
    return node_argv(f"deliveries@{host}", DELIVERY_QUEUE)


def flower_argv(settings: Settings) -> list[str]:
    """Return the command of Flower, read-only; its password is in the environment.

    Flower stores its record of tasks in the data folder, if that can be written. It moves a file that it cannot read
    aside.
    """
    folder, kept = settings.data_dir / "flower", []
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        kept = ["--persistent=True", f"--db={folder / 'state'}", f"--state-save-interval={FLOWER_SAVE_MS}"]
    return celery_argv(
        *("flower", f"--address={settings.flower_host}", f"--port={settings.flower_port}"),
        *("--read-only", f"--max-tasks={FLOWER_TASKS}", f"--purge-offline-workers={FLOWER_FORGET_S}"),
        *("--tasks-columns=name,state,result,received,runtime,worker,uuid", "--logging=error", *kept),
    )


def flower_password(settings: Settings) -> str:
    """Return Flower's password: the one in the settings, or a new one."""
    secret = settings.flower_password
    return secrets.token_urlsafe(12) if secret is None else secret.get_secret_value()


def flower_env(settings: Settings, password: str) -> dict[str, str]:
    """Return the environment of Flower: the settings, with its own user and password."""
    return settings.environment(core=None) | {"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"}


def worker_env(settings: Settings, slot: CoreSlot) -> dict[str, str]:
    """Return the environment of one core's worker."""
    return settings.environment(core=slot.index) | slot.environment


def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    fd: Annotated[
        int | None, typer.Option(min=3, help="A listening socket inherited from the parent process, instead.")
    ] = None,
) -> None:
    """Run the HTTP API alone: in one process, or in several on one address."""
    require_role("api")
    settings = read_settings(host=host, port=port)
    from corelane.cli.api_processes import count_processes, usable_cpus

    if fd is None:
        require_port(settings.host, settings.port)
    count = count_processes(settings.api_processes, usable_cpus())
    if count == 1:
        run_api(settings, fd)
    elif not run_apis(settings, count, fd):
        raise SetupError("an API process keeps failing; the reason is shown above")


def run_apis(settings: Settings, count: int, fd: int | None = None) -> bool:
    """Run several API processes that serve until a signal comes; return False if one was given up."""
    import asyncio

    from api.serve import BACKLOG
    from corelane.cli.api_processes import listen_beside, run_processes
    from corelane.log import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    _require_schema(settings)
    [first] = _api_config(settings, fd).create_sockets().insecure_sockets
    sockets = listen_beside(first, count, BACKLOG)
    env = settings.environment(api_processes=1, port=first.getsockname()[1])
    return asyncio.run(run_processes(sockets, env, API_GRACE_S))


def _require_schema(settings: Settings) -> None:
    """Raise SetupError if Redis has data of another format, or of another service."""
    from corelane.store.link.blocking import Link
    from corelane.store.schema import require_schema

    with closing(Link(settings.redis_url, SCHEMA_TIMEOUT_S)) as link:
        require_schema(link, settings.cell)


def _api_config(settings: Settings, fd: int | None) -> "Config":
    """Return Hypercorn's configuration: it listens on the settings' address, or on an inherited socket."""
    import logging

    from api.serve import make_config

    place = f"[{settings.host}]:{settings.port}" if ":" in settings.host else f"{settings.host}:{settings.port}"
    config = make_config(settings, place if fd is None else f"fd://{fd}", API_GRACE_S)
    config.errorlog = logging.getLogger("hypercorn.error")
    return config


def run_api(settings: Settings, fd: int | None = None) -> None:
    """Serve until a signal comes.

    At the signal, callers who wait for a job are answered at once. Then the server waits for open connections.
    """
    import asyncio

    import uvloop

    from api.app import create_app
    from api.serve import raise_file_limit, serve

    _require_schema(settings)
    raise_file_limit()
    config = _api_config(settings, fd)

    async def serve_until_asked() -> None:
        app, asked, loop = create_app(settings), asyncio.Event(), asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, asked.set)

        async def let_go() -> None:
            await asked.wait()
            app.state.app_state.jobs.completions.release()

        await serve(app, config, let_go)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_asked())


def worker(
    core: Annotated[int | None, typer.Option(help="Index of the core to serve on this machine.")] = None,
    only_core: Annotated[
        bool, typer.Option("--only-core", help="Serve the one core that this container was given, as core 0.")
    ] = False,
) -> None:
    """Run the worker of one core: pinned to it, reading a queue of its own."""
    require_role("worker")
    if (core is None) != only_core:
        raise typer.BadParameter("give --core, or --only-core in a container that has one core")
    settings = read_settings()
    slot = only_slot(settings) if core is None else core_slot(core, settings)
    env = worker_env(settings, slot)
    pin(slot)
    _become(worker_argv(Core(settings.core_host, slot.index)), env)


def keeper() -> None:
    """Run the keeper: returns the leases of dead workers, rings forgotten bells, feeds large jobs."""
    require_role("keeper")
    settings = read_settings()
    _become(keeper_argv(settings.core_host), settings.environment(core=None))


def deliveries() -> None:
    """Run the webhook sender: posts webhooks, with retries for a day. Any number may run."""
    require_role("deliveries")
    settings = read_settings()
    _become(deliveries_argv(settings.core_host), settings.environment(core=None))


def flower() -> None:
    """Run Flower, read-only and behind a password (generated and shown if none is set)."""
    require_role("flower")
    settings = read_settings()
    require_port(settings.flower_host, settings.flower_port, "CORELANE_FLOWER_PORT")
    password = flower_password(settings)
    if settings.flower_password is None:
        typer.echo(f"Flower's password was generated: user {FLOWER_USER}, password {password}")
    _become(flower_argv(settings), flower_env(settings, password))


def _become(argv: list[str], env: dict[str, str]) -> None:
    os.execve(argv[0], argv, env)
