"""A TCP proxy before Redis whose connections can be cut, delayed, stalled or left half-open: all of them, or those that
come from given ports.

Half-open is what a crashed router leaves behind: what is written on old connections vanishes, both ways, and nobody
closes them, while new connections work. All proxies of a fleet live in one thread.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

#: Bytes read at a time.
CHUNK = 1 << 16

#: SO_LINGER on, for 0 seconds: closing sends a reset.
RESET = struct.pack("ii", 1, 0)


class Network:
    """The thread all proxies run in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def proxy(self, port: int) -> "Proxy":
        """Start a proxy on a port of its own, before ``port`` of this machine."""
        proxy = Proxy(self, port)
        self.do(proxy.listen)
        self._proxies.append(proxy)
        return proxy

    def do(self, action: Callable[[], Awaitable[T]]) -> T:
        """Run something in the proxies' thread; its result."""

        async def run() -> T:
            return await action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def close(self) -> None:
        """End every connection and the thread."""
        for proxy in self._proxies:
            self.do(proxy.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


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
    """One port; its methods are called from any thread."""

    def __init__(self, network: Network, upstream_port: int) -> None:
        self.port = 0
        self.delay_s = 0.0
        self.flows = asyncio.Event()
        self.flows.set()
        self._network = network
        self.upstream_port = upstream_port
        self._wires: dict[Wire, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    def cut(self, ports: Collection[int] | None = None) -> int:
        """Reset every connection; how many there were. New ones are accepted."""

        async def act() -> int:
            wires = self._chosen(ports)
            for wire in wires:
                wire.reset()
            return len(wires)

        return self._network.do(act)

    def half_open(self, ports: Collection[int] | None = None) -> int:
        """From now on swallow what comes on the connections there are, for good; how many there were."""

        async def act() -> int:
            wires = [wire for wire in self._chosen(ports) if not wire.swallows]
            for wire in wires:
                wire.swallows = True
            return len(wires)

        return self._network.do(act)

    def delay(self, seconds: float, ports: Collection[int] | None = None) -> None:
        """Hold back each piece for so long, each way; 0 ends it. Without ports, on new connections too."""

        async def act() -> None:
            if ports is None:
                self.delay_s = seconds
            for wire in self._chosen(ports):
                wire.delay_s = seconds

        self._network.do(act)

    def stall(self, ports: Collection[int] | None = None) -> None:
        """Let nothing through until ``flow``; nothing is lost. Without ports, on new connections neither."""

        async def act() -> None:
            if ports is None:
                self.flows.clear()
            for wire in self._chosen(ports or ()):
                wire.flows.clear()

        self._network.do(act)

    def flow(self, ports: Collection[int] | None = None) -> None:
        """End a stall."""

        async def act() -> None:
            self.flows.set()
            for wire in self._chosen(ports):
                wire.flows.set()

        self._network.do(act)

    def _chosen(self, ports: Collection[int] | None) -> list[Wire]:
        return [wire for wire in self._wires if ports is None or wire.port in ports]

    async def listen(self) -> None:
        """Open the port; in the network's thread."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the port and every connection; in the network's thread."""
        if self._server is not None:
            self._server.close()
        for wire, task in list(self._wires.items()):
            wire.reset()
            task.cancel()
        await asyncio.gather(*self._wires.values(), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(self, writer, far_writer)
        task = asyncio.current_task()
        assert task is not None
        self._wires[wire] = task
        try:
            with suppress(asyncio.CancelledError):
                await wire.carry(reader, far_reader)
        finally:
            del self._wires[wire]
