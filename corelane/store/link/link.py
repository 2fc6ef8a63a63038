"""The link to Redis: the calls of every link, its errors, and the link for coroutines.

All coroutines of a process share one connection, and each command is sent once. Calls made in the same turn of the
event loop are pipelined: a call costs 30 µs of CPU alone and 4 µs in a crowd, against 130–180 µs of redis-py's asyncio
client (measured). redis-py still makes the connection, so URLs, passwords and TLS work as usual.

A caller that gives up does not disturb the others: its replies are read in order and dropped. If Redis sent nothing
meanwhile, or says that it takes no writes, later calls use a new connection. When the connection is lost, every call on
it raises StoreUnavailable, although Redis may have carried it out.
"""

import asyncio
import re
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hiredis
import orjson
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from corelane.errors import CorelaneError, StoreFull, StoreUnavailable, UnknownModel
from corelane.store import schema
from corelane.store.link.connections import NoPrimary, make_async_pool, says_no_primary
from corelane.store.link.library import Command, read_library

#: Longest time that a call waits for Redis to send anything, in seconds; blocking pops stay well below it.
SOCKET_TIMEOUT_S = 5

#: Bytes that may wait to be sent; above that, callers wait.
WRITE_BUFFER_BYTES = 1024 * 1024

#: The error with which ``admission.lua`` refuses: the bytes in use, the bytes that results will take, the limit.
REFUSED = re.compile(r"MEMORYFULL (\d+) (\d+) (\d+)")


class VersionClosed(UnknownModel):
    """A job's version takes no jobs any more, or what the job assumed about it is over: admit the job again."""


class CommonLink:
    """The calls that every reader may await.

    A reader is a coroutine that awaits only the link it is given. So it is written once, and runs on an AsyncLink as
    well as on a blocking link (``Link.read``).
    """

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, or raise the first error among them."""
        raise NotImplementedError

    async def __call__(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return (await self.many([command]))[0]

    async def run(self, function: str, *payloads: Any, **named: Any) -> Any:
        """Run one function of the library; return its reply."""
        return (await self.many([call(function, *payloads, **named)]))[0]

    async def now_ms(self) -> int:
        """Return the server's time, so that the clocks of hosts do not matter."""
        return to_ms(await self("TIME"))


class AsyncLink(CommonLink):
    """The asyncio counterpart of Link. Belongs to one event loop."""

    def __init__(self, url: str, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[_Wire] | None = None

    async def close(self) -> None:
        """Close the connection; calls in progress fail."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.transport.abort()
            await wire.closed

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """See CommonLink."""
        if not commands:
            return []
        try:
            replies = await self._exchange(commands)
            for reply in replies:
                if isinstance(reply, Exception):
                    return await self._go_on(commands, replies)
        except (redis.exceptions.RedisError, OSError) as error:
            if (known := translated(error)) is None:
                raise
            raise known from error
        return replies

    async def _go_on(self, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
        """Handle the errors among the replies; see ``exchanges``."""
        trip = exchanges(commands)
        next(trip)
        while True:
            try:
                to_send = trip.send(replies)
            except StopIteration as stop:
                return checked(stop.value)
            replies = await self._exchange(to_send)

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and wait for all replies; error replies are values."""
        wire = self._wire
        if wire is None or wire.is_retired or not wire.has_room:
            wire, call = await self._send_later(commands)
        else:
            call = wire.send(commands)
        heard = wire.heard
        timer = asyncio.get_running_loop().call_later(self._timeout_s, call.give_up)
        try:
            return await call.replied
        except TimeoutError as error:
            wire.is_retired = wire.is_retired or wire.heard == heard
            raise TimeoutError(f"no reply within {self._timeout_s:g} s") from error
        finally:
            timer.cancel()
            if wire.is_retired:
                wire.close_if_idle()

    async def _send_later(self, commands: Sequence[Command]) -> "tuple[_Wire, _Call]":
        """Send commands once there is a connection, and room on it."""
        wire: _Wire | None = None
        heard = 0
        try:
            async with asyncio.timeout(self._timeout_s):
                wire = self._wire
                if wire is None or wire.is_retired:
                    wire = await self._connect()
                heard = wire.heard
                await wire.wait_for_room()
                return wire, wire.send(commands)
        except TimeoutError as error:
            if wire is not None and wire.heard == heard:
                wire.is_retired = True
                wire.close_if_idle()
            raise TimeoutError(f"no reply within {self._timeout_s:g} s") from error

    async def _connect(self) -> "_Wire":
        """Connect, or join an attempt in progress. If one caller gives up, the attempt goes on for the others."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._open(), name="redis-connect")
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._connecting)

    async def _open(self) -> "_Wire":
        self._wire = _Wire(await open_streams(self._url))
        return self._wire


class _Call:
    """The commands of one caller. Their replies are read in order, even if the caller no longer waits for them."""

    __slots__ = ("left", "replied", "replies")

    def __init__(self, count: int) -> None:
        self.left = count
        self.replies: list[Any] = []
        self.replied: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def give_up(self) -> None:
        """Note that the caller timed out."""
        if not self.replied.done():
            self.replied.set_exception(TimeoutError())


class _Wire(asyncio.Protocol):
    """One connection, and the calls on it in the order in which they were sent."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        #: Both streams are kept for the life of the connection: a StreamWriter that is garbage collected closes it.
        self._streams = streams
        self.transport = streams[1].transport
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.transport.set_protocol(self)
        self._parser = hiredis.Reader(replyError=self._error_of)
        self.calls: deque[_Call] = deque()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: How many times Redis sent anything.
        self.heard = 0
        #: Whether later calls use another connection.
        self.is_retired = False

    @property
    def has_room(self) -> bool:
        """Return whether commands may be sent now."""
        return self._may_write.is_set()

    async def wait_for_room(self) -> None:
        """Return once commands may be sent."""
        while not self._may_write.is_set():  # The first of those that are woken may fill the buffer again.
            await self._may_write.wait()

    def send(self, commands: Sequence[Command]) -> _Call:
        """Send commands."""
        if self.closed.done() or self.transport.is_closing():
            raise redis.exceptions.ConnectionError("the connection was closed")
        data = b"".join(map(hiredis.pack_command, commands))
        call = _Call(len(commands))
        self.calls.append(call)
        self.transport.write(data)
        return call

    def close_if_idle(self) -> None:
        """Close this retired connection if no call waits on it."""
        if all(call.replied.done() for call in self.calls):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand replies to the callers, in the order of their calls."""
        self.heard += 1
        self._parser.feed(data)
        try:
            while (reply := self._parser.gets()) is not False:
                call = self.calls[0]
                call.left -= 1
                if not call.replied.done():
                    call.replies.append(reply)
                if not call.left:
                    self.calls.popleft()
                    if not call.replied.done():
                        call.replied.set_result(call.replies)
        except (hiredis.ProtocolError, IndexError):
            self.transport.abort()

    def _error_of(self, text: str) -> Exception:
        """Choose the class of an error reply. If the server takes no writes, later calls use a new connection."""
        self.is_retired = self.is_retired or says_no_primary(text)
        return error_of(text)

    def pause_writing(self) -> None:
        """Make callers wait, because the buffer is full."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Let callers write again."""
        self._may_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail every call in progress."""
        self.is_retired = True
        self.closed.set_result(None)
        self._may_write.set()
        reason = f"{type(error).__name__}: {error}" if error else "Redis closed the connection"
        for call in self.calls:
            if not call.replied.done():
                call.replied.set_exception(redis.exceptions.ConnectionError(reason))
                call.replied.exception()  # A caller that was canceled a moment ago will not ask for it.
        self.calls.clear()


async def open_streams(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Let redis-py connect and authenticate, then take over the streams; raise the errors of redis-py and sockets."""
    pool = make_async_pool(url, protocol=2, retry=Retry(NoBackoff(), 0))
    connection: Any = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        async with asyncio.timeout(SOCKET_TIMEOUT_S):
            await connection.connect()
    except BaseException as error:
        if connection._writer is not None:
            connection._writer.transport.abort()
        if isinstance(error, RuntimeError):  # uvloop's, for a transport that was closed a moment ago
            raise redis.exceptions.ConnectionError(str(error)) from error
        raise
    finally:
        streams = connection._reader, connection._writer
        connection._reader = connection._writer = None
    return streams


def error_of(text: str) -> Exception:
    """Choose the class that redis-py would raise for an error reply."""
    if says_no_primary(text):
        return NoPrimary(text)
    if text.startswith("OOM"):
        return redis.exceptions.OutOfMemoryError(text)
    return redis.exceptions.ResponseError(text)


def call(function: str, *payloads: Any, **named: Any) -> Command:
    """Return the command that calls a function of the library with payloads and named arguments.

    Named arguments that are None are left out. Those that are bytes must be UTF-8; they arrive as text.
    """
    given = {name: value for name, value in named.items() if value is not None}
    return ("FCALL", f"{read_library().name}_{function}", 0, orjson.dumps(given, default=bytes.decode), *payloads)


def is_missing(reply: Any) -> bool:
    """Return whether Redis refused a call because it does not have the library."""
    return isinstance(reply, Exception) and str(reply).endswith("Function not found")


def is_denied(reply: Any) -> bool:
    """Return whether Redis refused a command because the user may not send it."""
    return isinstance(reply, redis.exceptions.NoPermissionError) or (
        isinstance(reply, redis.exceptions.ResponseError) and str(reply).startswith("NOPERM")
    )


def exchanges(commands: Sequence[Command]) -> Generator[Sequence[Command], list[Any], list[Any]]:
    """Yield the commands to send, receive their replies, and return the final replies, errors among them.

    If Redis does not have the library, it is loaded, and the refused calls are sent again. A user who may not load it
    (role ``worker`` of ``store.acl``) waits until another user has loaded it.
    """
    replies = yield commands
    if refused := [place for place, reply in enumerate(replies) if is_missing(reply)]:
        data_format, loaded = yield [schema.CLAIM, read_library().load]
        if is_denied(loaded):
            raise StoreUnavailable(
                "Redis lacks the functions of this release, and this user may not load them: start an API or keeper"
            )
        checked([data_format, loaded])
        schema.require_known(data_format)
        again = yield [commands[place] for place in refused]
        for place, reply in zip(refused, again, strict=True):
            replies[place] = reply
    return replies


def to_ms(time: Sequence[bytes]) -> int:
    """Read the reply to ``TIME``."""
    seconds, micros = time
    return int(seconds) * 1000 + int(micros) // 1000


def pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Pair up a flat reply: fields with values, or members with scores."""
    return zip(flat[::2], flat[1::2], strict=True)


def texts(flat: Sequence[bytes]) -> dict[str, str]:
    """Read a flat reply of fields and values as text."""
    return {field.decode(): value.decode() for field, value in pairs(flat)}


def flatten(fields: Mapping[Any, Any]) -> list[Any]:
    """Flatten fields and values to arguments of a command."""
    return [part for pair in fields.items() for part in pair]


def checked(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


@contextmanager
def store_errors() -> Iterator[None]:
    """Translate the errors of redis-py and of sockets into errors of Corelane."""
    try:
        yield
    except (redis.exceptions.RedisError, OSError) as error:
        if (known := translated(error)) is None:
            raise
        raise known from error


def translated(error: Exception) -> CorelaneError | None:
    """Return Corelane's error for an error of redis-py or of a socket; None if Corelane has none for it."""
    text = str(error)
    match error:
        case redis.exceptions.OutOfMemoryError():
            return memory_full(text)
        case redis.exceptions.ResponseError() if "MEMORYFULL" in text:
            return memory_full(text)
        case NoPrimary():
            return StoreUnavailable(f"this Redis takes no writes, and no other was found: {text}")
        case redis.exceptions.ConnectionError() | redis.exceptions.TimeoutError() | OSError():
            return StoreUnavailable(f"Redis does not reply: {text}")
        case redis.exceptions.ResponseError() if "PAYLOADGONE" in text:
            return StoreUnavailable("Redis lost the job's payloads before it was kept; send it again")
        case redis.exceptions.ResponseError() if "DB index is out of range" in text:
            return StoreUnavailable(f"Redis has no database of this number: {text}")
        case redis.exceptions.ResponseError() if "VERSIONCLOSED" in text:
            return VersionClosed("this model version is being unloaded and takes no more jobs")
        case redis.exceptions.ResponseError() if any(word in text for word in ("OOM", "MISCONF", "LOADING", "BUSY")):
            return StoreFull(f"Redis does not take writes now: {text}")
    return None


def memory_full(text: str) -> StoreFull:
    """Return StoreFull for an error reply, with the figures of memory that the reply has, if any."""
    said = "Redis' memory is full"
    if found := REFUSED.search(text):
        used, reserved, limit = (int(size) / 1e6 for size in found.groups())
        needed = f"{used:,.0f} MB are used, and results of what was accepted will take {reserved:,.0f} MB"
        said = f"Redis' memory of {limit:,.0f} MB is full but for a tenth: {needed}"
    return StoreFull(
        f"{said}; nothing was kept. There is room again when results expire, or are deleted: delete final jobs that "
        "you have read, or have the operator raise `maxmemory`"
    )


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: its holder does some work for all processes, until the lease lapses or is released.

    Each holder gets a fence, a number that only grows. It distinguishes the steps of the present holder from those of
    an earlier one. Each method returns a command, one atomic step, for either kind of link.
    """

    key: str
    ttl_ms: int

    def take(self, holder: str) -> Command:
        """Take the lease, or extend it; the reply is the holder's fence, or 0 if another process holds it."""
        return call("lease", key=self.key, holder=holder, ttl_ms=self.ttl_ms)

    def release(self, holder: str) -> Command:
        """Release the lease if this holder has it; the reply is always 0."""
        return call("lease", key=self.key, holder=holder, ttl_ms=0)
