"""The calls that both links have, how replies are read, and the errors that callers see.

A reader is a coroutine that awaits nothing but the link it is given. So it is written once, and runs on an AsyncLink
as well as on a blocking one (``Link.read``).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import redis.exceptions

from corelane.errors import StoreFull, StoreUnavailable, UnknownModel
from corelane.store import schema
from corelane.store.link.library import Command, read_library

#: Longest silence of Redis that a call waits for, in seconds; blocking pops stay well below it.
SOCKET_TIMEOUT_S = 5


class VersionClosed(UnknownModel):
    """A version stopped taking jobs between a job's admission and its submission; admit it again."""


class CommonLink:
    """The calls that every reader may await; a link adds ``_exchange``."""

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and wait for all replies; error replies are values."""
        raise NotImplementedError

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, or raise the first error among them.

        Where Redis does not have the library, it is loaded, and the calls that Redis refused are sent again.
        """
        with store_errors():
            replies = await self._exchange(commands) if commands else []
            if refused := [place for place, reply in enumerate(replies) if is_missing(reply)]:
                data_format, _ = checked(await self._exchange([schema.CLAIM, read_library().load]))
                schema.require_known(data_format)
                again = await self._exchange([commands[place] for place in refused])
                for place, reply in zip(refused, again, strict=True):
                    replies[place] = reply
            return checked(replies)

    async def __call__(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return (await self.many([command]))[0]

    async def run(self, function: str, *payloads: Any, **named: Any) -> Any:
        """Run one function of the library; return its reply."""
        return (await self.many([call(function, *payloads, **named)]))[0]

    async def now_ms(self) -> int:
        """Return the server's time, so that the clocks of hosts do not matter."""
        return to_ms(await self("TIME"))


def call(function: str, *payloads: Any, **named: Any) -> Command:
    """Return the command that calls a function with named arguments, None left out, and payloads as they are.

    Named bytes must be UTF-8; they arrive as text.
    """
    given = {name: value for name, value in named.items() if value is not None}
    return ("FCALL", f"{read_library().name}_{function}", 0, orjson.dumps(given, default=bytes.decode), *payloads)


def is_missing(reply: Any) -> bool:
    """Return whether Redis refused a call because it does not have the library."""
    return isinstance(reply, Exception) and str(reply).endswith("Function not found")


def to_ms(time: Sequence[bytes]) -> int:
    """Read the reply to ``TIME``."""
    seconds, micros = time
    return int(seconds) * 1000 + int(micros) // 1000


def pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Split a reply into fields and values, or members and scores."""
    return zip(flat[::2], flat[1::2], strict=True)


def texts(flat: Sequence[bytes]) -> dict[str, str]:
    """Read a reply of fields and values that are all text."""
    return {field.decode(): value.decode() for field, value in pairs(flat)}


def flatten(fields: Mapping[Any, Any]) -> list[Any]:
    """Write fields and values as arguments of a command."""
    return [part for pair in fields.items() for part in pair]


def checked(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


@contextmanager
def store_errors() -> Iterator[None]:
    """Translate the errors of redis-py and of sockets into ours."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise StoreFull("the queue's memory is full; try again when jobs have finished") from error
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
    except redis.exceptions.ResponseError as error:
        if "PAYLOADGONE" in str(error):
            raise StoreUnavailable("Redis lost the job's payloads before it was kept; send it again") from error
        if "DB index is out of range" in str(error):
            raise StoreUnavailable(f"Redis has no database of this number: {error}") from error
        if "VERSIONCLOSED" in str(error):
            raise VersionClosed("this model version is being unloaded and takes no more jobs") from error
        if any(word in str(error) for word in ("OOM", "MISCONF", "READONLY", "LOADING", "BUSY")):
            raise StoreFull(f"Redis does not take writes now: {error}") from error
        raise
