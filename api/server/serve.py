"""Serve the application: Hypercorn's protocols on our own connections (``connections``), in one process.

To stop, it accepts no more connections, the application ends all waits, and requests have ``graceful_timeout`` to end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from hypercorn.utils import repr_socket_addr

from api.server.connections import Bounds, Connection, WatchedReader
from corelane.settings import Settings

#: Above the 60 s after which usual proxies drop an idle connection, in seconds.
KEEP_ALIVE_S = 75

#: Connections that wait to be accepted.
BACKLOG = 1024

#: Connections that are cut when the server stops are gone after this, in seconds.
CUT_S = 1.0

#: Over HTTP/2 Hypercorn 0.18 loses responses in progress when a connection reaches this number: no connection does.
NO_LIMIT = 2**31


def make_config(settings: Settings, bind: str, grace_s: float) -> Config:
    """Return Hypercorn's configuration: where to listen, and how long a stop waits for requests."""
    config = Config()
    config.bind = [bind]
    config.backlog = BACKLOG
    config.graceful_timeout = grace_s
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = NO_LIMIT
    config.h2_max_concurrent_streams = settings.max_connection_requests
    config.include_server_header = False
    return config


async def serve(app: Any, config: Config, settings: Settings, asked_to_stop: Callable[[], Awaitable[object]]) -> None:
    """Serve an ASGI application until asked to stop."""
    loop = asyncio.get_running_loop()
    wrapped, state, context = ASGIWrapper(app), LifespanState({}), WorkerContext(None)
    lifespan = Lifespan(wrapped, config, loop, state)
    living = loop.create_task(lifespan.handle_lifespan(), name="lifespan")
    await lifespan.wait_for_startup()
    if living.done() and (failure := living.exception()) is not None:
        raise failure
    bounds = Bounds(settings.max_connection_requests, settings.send_timeout_s)
    tasks: set[asyncio.Task[Any]] = set()

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio would log its own task for a coroutine as an error when it is canceled.
        task = loop.create_task(attend(reader, writer), name="connection")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(wrapped, loop, config, context, state, reader, writer)
        connection.bounds = bounds
        await connection

    def listen() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(WatchedReader(loop), meet, loop=loop)

    listeners = []
    for socket in config.create_sockets().insecure_sockets:
        listeners.append(await loop.create_server(listen, sock=socket, backlog=config.backlog))
        await config.log.info(f"Running on http://{repr_socket_addr(socket.family, socket.getsockname())}")
    try:
        await asked_to_stop()
    finally:
        await context.terminated.set()
        for listener in listeners:
            listener.close()
        await end(tasks, config.graceful_timeout)
        await lifespan.wait_for_shutdown()
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living


async def end(tasks: set[asyncio.Task[Any]], grace_s: float) -> None:
    """Wait for the connections to end, and cut those that do not."""
    left = set(tasks)
    if left:
        _, left = await asyncio.wait(left, timeout=grace_s)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CUT_S)
