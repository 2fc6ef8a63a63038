"""Reads stored contexts: what callers see of them, what submissions need to know, and their texts.

A job can name only contexts that its own owner stored. Redis holds each text once, even if many jobs name it, and
deletes it with the last job that needs it. See ``contexts.lua`` of the plugin that keeps them.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corelane.domain.contexts import PREFIX, ContextInfo, Known, Stored, digest_in
from corelane.domain.ids import iso_time
from corelane.errors import UnknownContext
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink

#: Fields that a caller sees.
FIELDS = ("name", "bytes", "chars", "tokens", "created_ms", "used_ms", "expires_ms", "removed", "jobs")

#: Most digests that one error message names.
NAMED = 5


@dataclass(frozen=True, slots=True)
class ContextPage:
    """Contexts of an owner, newest first; a cursor if more follow; and the bytes of all the owner's contexts."""

    data: list[ContextInfo]
    next: str | None
    bytes: int


class ContextStore:
    """Reads stored contexts for requests that name them."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def get(self, owner: str, context: str) -> ContextInfo | None:
        """Return a context of an owner, or None if new jobs cannot name it."""
        values = await self._link("HMGET", keys.context(owner, digest_in(context)), *FIELDS)
        return _info(context, values, await self._link.now_ms())

    async def text(self, owner: str, context: str) -> str | None:
        """Return the text of a context, or None where ``get`` returns None."""
        if await self.get(owner, context) is None:
            return None
        found = await self._link("HGET", keys.context(owner, digest_in(context)), "text")
        return None if found is None else found.decode()

    async def page(self, owner: str, after: str | None, limit: int) -> ContextPage:
        """Return a page of an owner's contexts, newest first, after a cursor."""
        last = "+" if after is None else f"({after}"
        key = keys.owner_contexts(owner)
        listed, in_all = await self._link.many(
            [("ZREVRANGEBYLEX", key, last, "-", "LIMIT", 0, limit + 1), ("HGET", keys.CONTEXT_BYTES, owner)]
        )
        members = [member.decode() for member in listed]
        digests = [member.partition(":")[2] for member in members[:limit]]
        hashes = await self._link.many([("HMGET", keys.context(owner, digest), *FIELDS) for digest in digests])
        now = await self._link.now_ms()
        found = [_info(PREFIX + digest, values, now) for digest, values in zip(digests, hashes, strict=True)]
        more = members[limit - 1] if len(members) > limit else None
        return ContextPage([each for each in found if each is not None], more, int(in_all or 0))

    async def known(self, owner: str, contexts: Collection[str], *, held: bool = False) -> dict[str, Known]:
        """Return what submissions need to know of an owner's contexts; missing ones are left out.

        With ``held``, contexts that are kept only for existing jobs are included, as a retry needs them.
        """
        fields = ("tokens", "head", "expires_ms", "removed")
        hashes = await self._link.many([("HMGET", keys.context(owner, digest_in(each)), *fields) for each in contexts])
        now = 0 if held else await self._link.now_ms()
        return {
            context: Known(float(tokens), head.decode())
            for context, (tokens, head, expires, removed) in zip(contexts, hashes, strict=True)
            if tokens is not None and (held or (removed is None and int(expires) > now))
        }


def unknown(contexts: Iterable[str]) -> UnknownContext:
    """Return one error that names all contexts that are missing."""
    listed = sorted(contexts)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return UnknownContext(
        f"there is no stored context {', '.join(listed[:NAMED])}{more}: it was never stored with this key, was "
        "deleted, or its time is over. Store it (PUT /v1/contexts/ID) and send this again; nothing was kept"
    )


def _info(context: str, values: Sequence[bytes | None], now_ms: int) -> ContextInfo | None:
    """Describe a context; return None if it is missing, or new jobs may not name it."""
    found: dict[str, Any] = {
        name: value.decode() for name, value in zip(FIELDS, values, strict=True) if value is not None
    }
    if "created_ms" not in found or "removed" in found or int(found["expires_ms"]) <= now_ms:
        return None
    return ContextInfo(
        id=context,
        name=found.get("name"),
        bytes=int(found["bytes"]),
        chars=int(found["chars"]),
        tokens=round(float(found["tokens"])),
        created_at=iso_time(int(found["created_ms"])),
        used_at=iso_time(int(found["used_ms"])),
        expires_at=iso_time(int(found["expires_ms"])),
        jobs=int(found.get("jobs", 0)),
    )


class ContextTexts:
    """The texts that a core used most recently, by owner and digest. Not thread-safe."""

    def __init__(self, link: Link, most_bytes: int) -> None:
        self._link = link
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, Stored], tuple[str, int]] = OrderedDict()

    def read(self, wanted: Collection[tuple[str, Stored]]) -> Mapping[tuple[str, Stored], str]:
        """Return texts of contexts, by owner and digest, without missing ones; at most one trip.

        A text cached for one owner is not used for another: the time saved would reveal that another owner has it.
        """
        found: dict[tuple[str, Stored], str] = {}
        for each in wanted:
            if each in self._kept:
                self._kept.move_to_end(each)
                found[each] = self._kept[each][0]
        if missing := [each for each in wanted if each not in found]:
            replies = self._link.many([("HGET", keys.context(owner, each.digest), "text") for owner, each in missing])
            for each, reply in zip(missing, replies, strict=True):
                if reply is not None:
                    found[each] = text = reply.decode(errors="replace")
                    self._keep(each, text, len(reply))
        return found

    def _keep(self, context: tuple[str, Stored], text: str, size: int) -> None:
        if context in self._kept or size > self._most_bytes:
            return
        self._kept[context] = text, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._kept.popitem(last=False)[1][1]
