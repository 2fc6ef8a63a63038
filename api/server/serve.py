"""Serve the application in one process: HTTP/1 by our own protocol (``http1``), HTTP/2 by Hypercorn's (``http2``).

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

from api.server.heads import Head
from api.server.http1 import KEEP_ALIVE_S, Http1
from api.server.http2 import BUFFER_BYTES, Http2
from api.server.serving import Bounds, Serving
from corelane.settings import Settings

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
    config.keep_alive_timeout = int(KEEP_ALIVE_S)
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

    def hand_over(transport: asyncio.Transport, data: bytes, upgrade: Head | None) -> None:
        reader = asyncio.StreamReader(BUFFER_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        reader.feed_data(data)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = Http2(wrapped, loop, config, context, state, reader, writer)
        connection.bounds, connection.upgrade = bounds, upgrade
        serving.open.add(connection)
        connection.task = loop.create_task(connection.run(), name="connection")
        connection.task.add_done_callback(lambda _: serving.leave(connection))

    serving = Serving(app, loop, bounds, state, hand_over)
    listeners = []
    for socket in config.create_sockets().insecure_sockets:
        listeners.append(await loop.create_server(lambda: Http1(serving), sock=socket, backlog=config.backlog))
        await config.log.info(f"Running on http://{repr_socket_addr(socket.family, socket.getsockname())}")
    try:
        await asked_to_stop()
    finally:
        await context.terminated.set()
        for listener in listeners:
            listener.close()
        await serving.end(config.graceful_timeout, CUT_S)
        await lifespan.wait_for_shutdown()
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living
