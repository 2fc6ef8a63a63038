"""A TCP proxy before Redis whose connections can be cut, delayed, stalled or left half-open: all of them, or those that
come from given ports.

Half-open is what a crashed router leaves behind: what is written on old connections vanishes, both ways, and nobody
closes them, while new connections work.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

#: Bytes read at a time.
CHUNK = 1 << 16

#: SO_LINGER on, for 0 seconds: closing sends a reset.
RESET = struct.pack("ii", 1, 0)


class Wire:
    """One connection through a proxy."""

    def __init__(self, proxy: "Proxy", near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.swallows = False
        self.delay_s = proxy.delay_s
        self.flows = asyncio.Event()
        self.flows.set()
        #: The port it comes from.
        self.port = int(near.get_extra_info("peername")[1])
        self._proxy = proxy
        self._ends = (near, far)

    async def carry(self, near: asyncio.StreamReader, far: asyncio.StreamReader) -> None:
        """Pass bytes on, both ways, until one end closes."""
        ways = [
            asyncio.create_task(self._pump(near, self._ends[1])),
            asyncio.create_task(self._pump(far, self._ends[0])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in self._ends:
                end.close()

    def reset(self) -> None:
        """End both sides with a reset."""
        for end in self._ends:
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.transport.abort()

    def swallow(self) -> bool:
        """Lose what comes from now on; return whether it was not so before."""
        swallowed, self.swallows = self.swallows, True
        return not swallowed

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(CHUNK):
                await asyncio.sleep(self.delay_s)
                await self._proxy.flows.wait()
                await self.flows.wait()
                if not self.swallows:
                    writer.write(data)
                    await writer.drain()


class Proxy:
    """One port, in a thread of its own; its methods are called from any thread. Without ports they strike all."""

    def __init__(self, upstream_port: int) -> None:
        """Open a port before ``upstream_port`` of this machine."""
        self.upstream_port = upstream_port
        self.delay_s = 0.0
        self.flows = asyncio.Event()
        self.flows.set()
        self._wires: dict[Wire, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self, ports: Collection[int] | None = None) -> int:
        """Reset every connection; how many there were. New ones are accepted."""
        return self._each(Wire.reset, ports)

    def half_open(self, ports: Collection[int] | None = None) -> int:
        """From now on swallow what comes on the connections there are, for good; how many there are."""
        return self._each(Wire.swallow, ports)

    def delay(self, seconds: float, ports: Collection[int] | None = None) -> None:
        """Hold back each piece for so long, each way; 0 ends it. Without ports, on new connections too."""
        if ports is None:
            self.delay_s = seconds
        self._each(lambda wire: setattr(wire, "delay_s", seconds), ports)

    def stall(self, ports: Collection[int] | None = None) -> None:
        """Let nothing through until ``flow``; nothing is lost. Without ports, on new connections neither."""
        if ports is None:
            self._loop.call_soon_threadsafe(self.flows.clear)
        self._each(lambda wire: wire.flows.clear(), ports or ())

    def flow(self, ports: Collection[int] | None = None) -> None:
        """End a stall."""
        self._loop.call_soon_threadsafe(self.flows.set)
        self._each(lambda wire: wire.flows.set(), ports)

    def close(self) -> None:
        """End the port, every connection and the thread; harmless if it is over."""
        if self._loop.is_closed():
            return

        async def act() -> None:
            self._server.close()
            for wire, task in list(self._wires.items()):
                wire.reset()
                task.cancel()
            await asyncio.gather(*self._wires.values(), return_exceptions=True)

        self._do(act())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def _do(self, action: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(10)

    def _each(self, action: Callable[[Wire], object], ports: Collection[int] | None) -> int:
        async def act() -> int:
            wires = [wire for wire in self._wires if ports is None or wire.port in ports]
            return sum(action(wire) is not False for wire in wires)

        return self._do(act())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            writer.transport.abort()
            return
        wire, task = Wire(self, writer, far_writer), asyncio.current_task()
        assert task is not None
        self._wires[wire] = task
        try:
            with suppress(asyncio.CancelledError):
                await wire.carry(reader, far_reader)
        finally:
            del self._wires[wire]


@contextmanager
def proxy_before(port: int) -> Iterator[Proxy]:
    """Start a proxy before a port of this machine, and end it."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
