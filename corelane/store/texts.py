"""Reads stored texts: what callers see of them, what submissions need to know, and the texts themselves.

A job can name only texts that its own owner stored. Redis holds each once, even if many jobs name it, and
deletes it with the last job that needs it. See ``texts.lua`` of the plugin that keeps them.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from corelane.domain.ids import iso_time
from corelane.domain.texts import PREFIX, Known, Stored, TextInfo, TextList, digest_in
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink

#: Fields that a caller sees.
FIELDS = ("name", "bytes", "chars", "tokens", "created_ms", "used_ms", "expires_ms", "removed", "jobs")


class TextStore:
    """Reads stored texts for requests that name them."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def get(self, owner: str, name: str) -> TextInfo | None:
        """Return what is known of an owner's text, or None if new jobs cannot name it."""
        values = await self._link("HMGET", keys.stored_text(owner, digest_in(name)), *FIELDS)
        return _info(name, values, await self._link.now_ms())

    async def text(self, owner: str, name: str) -> str | None:
        """Return a stored text, or None where ``get`` returns None."""
        if await self.get(owner, name) is None:
            return None
        found = await self._link("HGET", keys.stored_text(owner, digest_in(name)), "text")
        return None if found is None else found.decode()

    async def page(self, owner: str, after: str | None, limit: int) -> TextList:
        """Return a page of an owner's texts, newest first, after a cursor."""
        last = "+" if after is None else f"({after}"
        key = keys.owner_texts(owner)
        listed, in_all = await self._link.many(
            [("ZREVRANGEBYLEX", key, last, "-", "LIMIT", 0, limit + 1), ("HGET", keys.TEXT_BYTES, owner)]
        )
        digests = [member.decode().partition(":")[2] for member in listed[:limit]]
        hashes = await self._link.many([("HMGET", keys.stored_text(owner, digest), *FIELDS) for digest in digests])
        now = await self._link.now_ms()
        found = [_info(PREFIX + digest, values, now) for digest, values in zip(digests, hashes, strict=True)]
        more = listed[limit - 1].decode() if len(listed) > limit else None
        data = [each for each in found if each is not None]
        return TextList(data=data, has_more=more is not None, next=more, bytes=int(in_all or 0))

    async def known(self, owner: str, names: Collection[str], *, held: bool = False) -> dict[str, Known]:
        """Return what submissions need to know of an owner's texts; missing ones are left out.

        With ``held``, texts that are kept only for existing jobs are included, as a retry needs them.
        """
        fields = ("tokens", "head", "expires_ms", "removed")
        hashes = await self._link.many([("HMGET", keys.stored_text(owner, digest_in(each)), *fields) for each in names])
        now = 0 if held else await self._link.now_ms()
        return {
            name: Known(float(tokens), head.decode())
            for name, (tokens, head, expires, removed) in zip(names, hashes, strict=True)
            if tokens is not None and (held or (removed is None and int(expires) > now))
        }


def _info(name: str, values: Sequence[bytes | None], now_ms: int) -> TextInfo | None:
    """Describe a stored text; return None if it is missing, or new jobs may not name it."""
    found: dict[str, Any] = {
        field: value.decode() for field, value in zip(FIELDS, values, strict=True) if value is not None
    }
    if "created_ms" not in found or "removed" in found or int(found["expires_ms"]) <= now_ms:
        return None
    return TextInfo(
        id=name,
        name=found.get("name"),
        bytes=int(found["bytes"]),
        chars=int(found["chars"]),
        tokens=round(float(found["tokens"])),
        created_at=iso_time(int(found["created_ms"])),
        used_at=iso_time(int(found["used_ms"])),
        expires_at=iso_time(int(found["expires_ms"])),
        jobs=int(found.get("jobs", 0)),
    )


class RecentTexts:
    """The texts that a core used most recently, by owner and digest. Not thread-safe."""

    def __init__(self, link: Link, most_bytes: int) -> None:
        self._link = link
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, Stored], tuple[str, int]] = OrderedDict()

    def read(self, wanted: Collection[tuple[str, Stored]]) -> Mapping[tuple[str, Stored], str]:
        """Return stored texts, by owner and digest, without missing ones; at most one trip.

        A text cached for one owner is not used for another: the time saved would reveal that another owner has it.
        """
        found: dict[tuple[str, Stored], str] = {}
        for each in wanted:
            if each in self._kept:
                self._kept.move_to_end(each)
                found[each] = self._kept[each][0]
        if missing := [each for each in wanted if each not in found]:
            asked = [("HGET", keys.stored_text(owner, each.digest), "text") for owner, each in missing]
            replies = self._link.many(asked)
            for each, reply in zip(missing, replies, strict=True):
                if reply is not None:
                    found[each] = text = reply.decode(errors="replace")
                    self._keep(each, text, len(reply))
        return found

    def _keep(self, place: tuple[str, Stored], text: str, size: int) -> None:
        if place in self._kept or size > self._most_bytes:
            return
        self._kept[place] = text, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._kept.popitem(last=False)[1][1]
