"""JSON bodies: how they are read so that one caller's large body holds up no other request, and how much is held.

A small body is read at once. A large one is read in a thread, one at a time, because its parser holds the GIL for as
long as it takes. After it the thread rests for as long, so that other requests run between two large bodies. Large
bodies in memory are bounded, by owner and in all; the next ones wait outside, unread.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.context import CALLER
from corelane.errors import Overloaded, TooLarge
from corelane.settings import Settings
from corelane.submitting.submitter import require_few_items

#: A body is large from this size on, in bytes: to read a smaller one takes 5 ms at most.
LARGE_BYTES = 256 * 1024

#: Bytes of large bodies in memory, in all and of one owner. Parsed, a body takes up to three times as many.
HELD_BYTES, OWNER_BYTES = 64 * 1024 * 1024, 32 * 1024 * 1024

#: A large body waits for room for this long, in seconds.
ROOM_S = 10.0

#: Lists, objects and fields in a body: parsing 250,000 takes 60 ms, and nothing can run meanwhile. They are counted by
#: their marks, those in texts too, which is quick: 10,000 items with ids have 40,000.
MOST_MARKS = 250_000

Read = TypeVar("Read")


class Room:
    """The room that one large body takes up."""

    def __init__(self, bodies: "LargeBodies", owner: str, size: int) -> None:
        self._bodies = bodies
        self._owner = owner
        self._size = size

    def leave(self) -> None:
        """Give the room to others; may be repeated."""
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

    @asynccontextmanager
    async def room(self, request: Request) -> AsyncIterator[Room]:
        """Take up room for a request's body before it is read; raise Overloaded if there is none for some time."""
        owner, size = owner_of(request), expected_bytes(request)
        if size:
            try:
                async with asyncio.timeout(ROOM_S):
                    while not self._has_room(owner, size):
                        await self._freed.wait()
            except TimeoutError:
                raise Overloaded("too many large bodies are being read; send fewer at a time", 1) from None
        room = Room(self, owner, size)
        self._held[owner] += size
        try:
            yield room
        finally:
            room.leave()

    def release(self, owner: str, size: int) -> None:
        """Give room to others."""
        self._held[owner] -= size
        self._held += Counter()
        self._freed.set()
        self._freed = asyncio.Event()

    async def read(self, owner: str, sent: bytes, parse: Callable[[bytes], Read]) -> Read:
        """Parse a body, in a thread if it is large. Owners take turns."""
        if len(sent) <= LARGE_BYTES:
            return parse(sent)
        async with self._turns.setdefault(owner, asyncio.Lock()), self._turn:
            clock = asyncio.get_running_loop().time
            await asyncio.sleep(self._rests_until - clock())
            begun = clock()
            try:
                return await asyncio.to_thread(parse, sent)
            finally:
                self._rests_until = 2 * clock() - begun

    def _has_room(self, owner: str, size: int) -> bool:
        """Return whether a body may be read: one that is larger than all the room may, by itself."""
        held, own = self._held.total(), self._held[owner]
        return (not held or held + size <= HELD_BYTES) and (not own or own + size <= OWNER_BYTES)


class JsonRequest(Request):
    """A request whose JSON is read by orjson: ten times as fast as the standard library on large jobs.

    It refuses invalid UTF-8, NaN and lone surrogates, which the standard library accepts.
    """

    #: What its body is validated as, if it is large.
    model: type[BaseModel] | None = None
    #: What its body takes up.
    taken: Room | None = None

    async def json(self) -> Any:
        """Return the body's value, or if it is large the model of it.

        Raise json.JSONDecodeError, which FastAPI answers with 422; TooLarge; RequestValidationError.
        """
        settings, model = self.app.state.parts.settings, self.model

        def parse(sent: bytes) -> Any:
            return read_json(settings, sent, model if len(sent) > LARGE_BYTES else None)

        return await large_bodies(self).read(owner_of(self), await self.body(), parse)

    def let_go(self) -> None:
        """Forget the body: what was made of it is kept elsewhere."""
        self._body = b""
        if self.taken is not None:
            self.taken.leave()


def read_json(settings: Settings, sent: bytes, model: type[BaseModel] | None = None) -> Any:
    """Return a body's value, validated if a model is given; raise what ``JsonRequest.json`` raises."""
    if sum(sent.count(mark) for mark in (b"[", b"{", b":")) > MOST_MARKS:
        raise TooLarge(
            f"the body has more than {MOST_MARKS:,} brackets and colons: send it as lines (application/x-ndjson), or "
            "in several parts"
        )
    value = orjson.loads(sent)
    if isinstance(value, dict):
        for name in ("items", "inputs"):
            if isinstance(listed := value.get(name), list):
                require_few_items(settings, len(listed))
    if model is None:
        return value
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in faults]) from None


def large_bodies(request: Request) -> LargeBodies:
    """Return the large bodies of the process that serves a request."""
    found: LargeBodies = request.app.state.large_bodies
    return found


def owner_of(request: Request) -> str:
    """Return the owner whose request it is; empty where anyone may ask."""
    caller = request.scope.get(CALLER)
    return "" if caller is None else caller.owner


def expected_bytes(request: Request) -> int:
    """Return the bytes that a body will take up: none if it is small, the most allowed if its sender does not say."""
    declared, most = request.headers.get("content-length", ""), request.app.state.parts.settings.max_body_bytes
    size = min(int(declared), most) if declared.isdecimal() and len(declared) < 20 else most
    has_none = not declared and request.scope["http_version"] != "2" and "transfer-encoding" not in request.headers
    return 0 if has_none or size <= LARGE_BYTES else int(size)
