"""Large bodies: they are read without delaying other requests, and their total size in memory is limited.

A large body is parsed in a thread, one at a time, because its parser holds the GIL. The thread then rests for as long
as it parsed, so that other requests run. Large bodies in memory are limited per owner and in all; more wait unread.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import orjson

from corelane.errors import Overloaded, TooLarge

#: A body is large from this size on, in bytes. Reading a smaller one takes at most 5 ms.
LARGE_BYTES = 256 * 1024

#: Most bytes of large bodies in memory, in all and per owner. Once parsed, a body takes up to three times as much.
HELD_BYTES, OWNER_BYTES = 64 * 1024 * 1024, 32 * 1024 * 1024

#: Longest time that a large body waits for room, in seconds.
ROOM_S = 10.0

#: Most brackets and colons in a body, and most quotes, including those in texts. Parsing 250,000 takes 60 ms, during
#: which nothing else runs.
MOST_MARKS, MOST_QUOTES = 250_000, 500_000

Read = TypeVar("Read")


class BodyRoom:
    """The room that one body takes up, until ``leave`` is called or the ``with`` block ends."""

    def __init__(self, bodies: "LargeBodies", owner: str, size: int) -> None:
        self._bodies = bodies
        self._owner = owner
        self._size = size

    def __enter__(self) -> "BodyRoom":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the room; may be repeated."""
        size, self._size = self._size, 0
        if size:
            self._bodies.release(self._owner, size)


class LargeBodies:
    """The large bodies in one process's memory. Belongs to one event loop."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rests_until = 0.0

    async def enter(self, owner: str, size: int) -> BodyRoom:
        """Reserve room for a body before it is read; raise Overloaded if there is none for some time."""
        if size <= LARGE_BYTES:
            return BodyRoom(self, owner, 0)
        try:
            async with asyncio.timeout(ROOM_S):
                while not self._has_room(owner, size):
                    await self._freed.wait()
        except TimeoutError:
            raise Overloaded("too many large bodies are in progress; send fewer at a time", 1) from None
        self._held[owner] += size
        return BodyRoom(self, owner, size)

    def release(self, owner: str, size: int) -> None:
        """Release room for other bodies."""
        self._held[owner] -= size
        self._held += Counter()  # forgets owners who hold nothing
        self._freed.set()
        self._freed = asyncio.Event()

    async def read(self, owner: str, sent: bytes, parse: Callable[[bytes], Read], *, is_parsed: bool = False) -> Read:
        """Parse a body, in a thread if it is large. Owners take turns.

        A body that ``is_parsed`` and only to be validated goes before the owner's others: its values hold memory.
        """
        if len(sent) <= LARGE_BYTES:
            return parse(sent)
        own_turn = nullcontext() if is_parsed else self._turns.setdefault(owner, asyncio.Lock())
        async with own_turn, self._turn:
            clock = asyncio.get_running_loop().time
            await asyncio.sleep(self._rests_until - clock())
            begun = clock()
            try:
                return await asyncio.to_thread(parse, sent)
            finally:
                self._rests_until = 2 * clock() - begun

    def _has_room(self, owner: str, size: int) -> bool:
        """Return whether there is room for a body. One that is larger than all the room is read alone."""
        held, own = self._held.total(), self._held[owner]
        return (not held or held + size <= HELD_BYTES) and (not own or own + size <= OWNER_BYTES)


def load(sent: bytes) -> Any:
    """Parse JSON; raise orjson.JSONDecodeError, or TooLarge if parsing would take long."""
    if len(sent) > MOST_MARKS and (sum(map(sent.count, b"[{:")) > MOST_MARKS or sent.count(b'"') > MOST_QUOTES):
        raise TooLarge(
            f"one piece of JSON may have {MOST_MARKS:,} brackets and colons, and {MOST_QUOTES:,} quotes, at most: send "
            "it in several parts, or as lines (application/x-ndjson)"
        )
    if len(sent) <= LARGE_BYTES:
        return orjson.loads(sent)
    # Otherwise the garbage collector scans all objects of the process several times meanwhile: 0.3 s for 240,000 lists.
    gc.disable()
    try:
        return orjson.loads(sent)
    finally:
        gc.enable()
