"""What is known of files: whose they are, what for, how large, how long they are kept. Their content is not here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from corelane.domain.batches import FileObject, Purpose
from corelane.store import keys
from corelane.store.link.surface import CommonLink, pairs

#: Files and batches that are forgotten in one round of the keeper.
RETIRED_PER_ROUND = 100

#: A file whose content could not be deleted is tried again after this, in milliseconds.
RETIRE_AGAIN_MS = 60_000

#: Files looked at in one trip, where only those of one purpose are asked for.
LOOK_FILES = 500

Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file."""

    id: str
    owner: str
    purpose: Purpose
    filename: str
    size: int
    created_ms: int
    expires_ms: int

    @classmethod
    def parse(cls, file: str, raw: Sequence[Any]) -> "FileRecord":
        """A file's hash as a record."""
        values = {key.decode(): value.decode() for key, value in pairs(raw)}
        return cls(
            id=file,
            owner=values["owner"],
            purpose=cast(Purpose, values["purpose"]),
            filename=values["filename"],
            size=int(values["bytes"]),
            created_ms=int(values["created_ms"]),
            expires_ms=int(values["expires_ms"]),
        )

    def describe(self) -> FileObject:
        """The file as callers see it."""
        return FileObject(
            id=self.id,
            bytes=self.size,
            created_at=self.created_ms // 1000,
            expires_at=self.expires_ms // 1000,
            filename=self.filename,
            purpose=self.purpose,
        )


def file_fields(purpose: Purpose, filename: str, size: int) -> list[str]:
    """What is stored of a file besides its owner and times, as names and values by turns."""
    return ["purpose", purpose, "filename", filename, "bytes", str(size)]


class FileStore:
    """Files as the API and the keeper see them."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def keep(self, file: str, owner: str, ttl_s: int, fields: list[str]) -> None:
        """A file, whole in its storage, is known from now on."""
        await self._link.run("keep_file", file=file, owner=owner, ttl_ms=ttl_s * 1000, fields=fields)

    async def get(self, file: str) -> FileRecord | None:
        """A file, or None if there is none (any more)."""
        raw = await self._link("HGETALL", keys.file(file))
        return FileRecord.parse(file, raw) if raw else None

    async def page(
        self, owner: str, after: str | None, limit: int, order: Order, purpose: str | None
    ) -> list[FileRecord]:
        """An owner's files behind one of them, ``limit`` at most."""
        found: list[FileRecord] = []
        while len(found) < limit:
            ids = await owned_ids(self._link, keys.files(owner), after, LOOK_FILES, order)
            raws = await self._link.many([("HGETALL", keys.file(each)) for each in ids])
            records = [FileRecord.parse(each, raw) for each, raw in zip(ids, raws, strict=True) if raw]
            found += [record for record in records if purpose is None or record.purpose == purpose]
            if len(ids) < LOOK_FILES:
                break
            after = ids[-1]
        return found[:limit]

    async def forget(self, record: FileRecord) -> None:
        """A file is known no more; its content is to be deleted, then ``retired`` is to be told."""
        await self._link.many(
            [
                ("ZADD", keys.RETIRING, 0, record.id),
                ("ZREM", keys.files(record.owner), record.id),
                ("DEL", keys.file(record.id)),
            ]
        )

    async def retire(self) -> list[str]:
        """Files and batches whose time is over are known no more; their ids. Of files the content is still there."""
        now = await self._link.now_ms()
        due = await self._link("ZRANGEBYSCORE", keys.RETIRING, "-inf", now, "LIMIT", 0, RETIRED_PER_ROUND)
        ids = [each.decode() for each in due]
        patterns = [(keys.batch, keys.batches) if each.startswith("batch") else (keys.file, keys.files) for each in ids]
        names = [key(each) for each, (key, _) in zip(ids, patterns, strict=True)]
        owners = await self._link.many([("HGET", name, "owner") for name in names])
        commands: list[tuple[Any, ...]] = [("DEL", name) for name in names]
        for each, (_, owned), owner in zip(ids, patterns, owners, strict=True):
            if owner is not None:
                commands.append(("ZREM", owned(owner.decode()), each))
        if commands:
            await self._link.many(commands)
        return ids

    async def retired(self, done: list[str], failed: list[str]) -> None:
        """Nothing is left of the first; the others' content could not be deleted yet."""
        again = await self._link.now_ms() + RETIRE_AGAIN_MS
        if done:
            await self._link("ZREM", keys.RETIRING, *done)
        if failed:
            await self._link("ZADD", keys.RETIRING, *(part for each in failed for part in (again, each)))

    async def known(self, files: list[str]) -> list[bool]:
        """Which of these files are known."""
        return [bool(each) for each in await self._link.many([("EXISTS", keys.file(file)) for file in files])]


async def owned_ids(link: CommonLink, key: str, after: str | None, limit: int, order: Order) -> list[str]:
    """Ids in an owner's list behind one of them, which need not be there any more; ids sort by their time."""
    if order == "desc":
        command = ("ZREVRANGEBYLEX", key, "+" if after is None else f"({after}", "-")
    else:
        command = ("ZRANGEBYLEX", key, "-" if after is None else f"({after}", "+")
    return [each.decode() for each in await link(*command, "LIMIT", 0, limit)]
