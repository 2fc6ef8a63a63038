"""The commands that become one process of the fleet: api, worker, keeper, deliveries, flower.

Each replaces this process. What a role needs before its libraries load (CPU affinity, thread counts, the settings as
environment) is set here, at exec.
"""

import os
import secrets
import signal
import sys
from contextlib import closing
from typing import Annotated

import typer

from corelane.cli.errors import exit_on_error, require
from corelane.domain.dispatch import DELIVERY_QUEUE, KEEPER_QUEUE, Core
from corelane.engine.cores import CoreSlot, core_slot, pin
from corelane.settings import Settings, read_settings

#: A stop waits this long for requests that are being answered; longer waits are cut, and clients ask again, in seconds.
API_GRACE_S = 10

#: A Redis that is silent for longer does not hold up the start, in seconds.
SCHEMA_TIMEOUT_S = 2

#: How Celery's warning for root begins: 8 lines from each part, about a danger of pickled messages; ours are JSON.
ROOT_WARNING = "You're running the worker with superuser privileges"


def celery_argv(*arguments: str) -> list[str]:
    """A Celery command of this interpreter."""
    return [sys.executable, "-W", f"ignore:{ROOT_WARNING}", "-m", "celery", "--quiet", "-A", "workers.app", *arguments]


def worker_argv(core: Core) -> list[str]:
    """The Celery worker of one core: one child, a queue of its own, heartbeat for Flower, no gossip."""
    return celery_argv(
        *("worker", "-n", core.node, "-Q", core.queue, "-c", "1", "-P", "prefork", "-E"),
        *("--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def keeper_argv(host: str) -> list[str]:
    """The keeper: sweeps, feeding and batches, from loops of its own."""
    return celery_argv(
        *("worker", "-n", f"keeper@{host}", "-Q", KEEPER_QUEUE),
        *("-P", "threads", "-c", "1", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def deliveries_argv(host: str) -> list[str]:
    """The courier: posts webhooks, in a process where a receiver can hold up nothing else."""
    return celery_argv(
        *("worker", "-n", f"deliveries@{host}", "-Q", DELIVERY_QUEUE),
        *("-P", "threads", "-c", "1", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def flower_argv(settings: Settings) -> list[str]:
    """Flower, read-only; its password goes through the environment."""
    return celery_argv(
        *("flower", f"--address={settings.flower_host}", f"--port={settings.flower_port}"),
        *("--read-only", "--max-tasks=10000", "--logging=error"),
    )


def flower_env(settings: Settings, password: str) -> dict[str, str]:
    """The environment of Flower: the settings, and its own user and password."""
    return settings.environment(core=None) | {"FLOWER_BASIC_AUTH": f"{settings.flower_user}:{password}"}


def worker_env(settings: Settings, slot: CoreSlot) -> dict[str, str]:
    """The environment of one core's worker."""
    return settings.environment(core=slot.index) | slot.environment


def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    fd: Annotated[
        int | None, typer.Option(min=3, help="A listening socket handed down by the parent process, instead.")
    ] = None,
) -> None:
    """Run the HTTP API alone."""
    with exit_on_error():
        require("api", "fastapi", "hypercorn", "redis", "celery")
        settings = read_settings(host=host, port=port)
        raise typer.Exit(run_api(settings, fd))


def run_api(settings: Settings, fd: int | None = None) -> int:
    """Serve until a signal comes; the exit status.

    Whoever waits for a job is answered as soon as the signal is there, before Hypercorn waits for open connections.
    """
    import asyncio
    import logging

    import uvloop

    from api.app import create_app
    from api.server.serve import make_config, serve
    from corelane.store.link.blocking import Link
    from corelane.store.schema import require_schema

    with closing(Link(settings.redis_url, SCHEMA_TIMEOUT_S)) as link:
        require_schema(link)
    place = f"[{settings.host}]:{settings.port}" if ":" in settings.host else f"{settings.host}:{settings.port}"
    config = make_config(settings, place if fd is None else f"fd://{fd}", API_GRACE_S)
    config.errorlog = logging.getLogger("hypercorn.error")

    async def serve_until_asked() -> None:
        app, asked, loop = create_app(settings), asyncio.Event(), asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, asked.set)

        async def let_go() -> None:
            await asked.wait()
            app.state.parts.completions.let_go()

        await serve(app, config, settings, let_go)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_asked())
    return 0


def worker(
    core: Annotated[int, typer.Option(help="Index of the core to serve on this machine.")],
    redis: Annotated[str | None, typer.Option(help="Redis URL.")] = None,
) -> None:
    """Run the worker of one core: pinned to it, reading a queue of its own."""
    with exit_on_error():
        require("worker", "celery", "torch", "tokenizers")
        settings = read_settings(redis_url=redis)
        slot = core_slot(core, settings)
        pin(slot)
        argv = worker_argv(Core(settings.core_host, core))
        os.execve(argv[0], argv, worker_env(settings, slot))


def keeper(redis: Annotated[str | None, typer.Option(help="Redis URL.")] = None) -> None:
    """Run the keeper: returns the leases of the dead, rings forgotten bells, feeds large jobs."""
    with exit_on_error():
        require("api", "celery", "redis")
        settings = read_settings(redis_url=redis)
        argv = keeper_argv(settings.core_host)
        os.execve(argv[0], argv, settings.environment(core=None))


def deliveries(redis: Annotated[str | None, typer.Option(help="Redis URL.")] = None) -> None:
    """Run the courier: posts webhooks, and tries again for a day. Any number may run."""
    with exit_on_error():
        require("api", "celery", "redis", "ssrfguard")
        settings = read_settings(redis_url=redis)
        argv = deliveries_argv(settings.core_host)
        os.execve(argv[0], argv, settings.environment(core=None))


def flower(redis: Annotated[str | None, typer.Option(help="Redis URL.")] = None) -> None:
    """Run Flower, read-only and behind a password (generated and shown if none is set)."""
    with exit_on_error():
        require("worker", "celery", "flower")
        settings = read_settings(redis_url=redis)
        if settings.flower_password is None:
            password = secrets.token_urlsafe(12)
            typer.echo(f"Flower's password was generated: user {settings.flower_user}, password {password}")
        else:
            password = settings.flower_password.get_secret_value()
        argv = flower_argv(settings)
        os.execve(argv[0], argv, flower_env(settings, password))
