"""The records of files: owner, purpose, size, and how long they are kept. The content is in the storage of files."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from corelane.domain.batches import FileObject, Purpose
from corelane.plugins.files.store import keys
from corelane.store.link.link import CommonLink, texts
from corelane.store.link.replicas import ReplicaGate

#: Most files and batches that the keeper forgets in one round.
RETIRED_PER_ROUND = 100

#: A file whose content could not be deleted is tried again after this, in milliseconds.
RETIRE_AGAIN_MS = 60_000

#: Files read in one round trip.
TRIP_FILES = 500

Order = Literal["asc", "desc"]


def file_fields(purpose: Purpose, filename: str, size: int) -> list[str]:
    """Return the stored fields of a file, except its owner and times: names, each followed by its value."""
    return ["purpose", purpose, "filename", filename, "bytes", str(size)]


class FileStore:
    """The records of files, for the API and the keeper."""

    def __init__(self, link: CommonLink, gate: ReplicaGate | None = None) -> None:
        self._link, self._gate = link, gate

    async def keep(self, file: str, owner: str, ttl_s: int, fields: list[str]) -> None:
        """Register a file whose content is complete in the storage."""
        await self._link.run("keep_file", file=file, owner=owner, ttl_ms=ttl_s * 1000, fields=fields)
        if self._gate is not None:
            await self._gate.confirm(keys.file(file), "owner")

    async def get(self, file: str, owner: str) -> FileObject | None:
        """Read an owner's file; return None if it does not exist, or no longer."""
        values = texts(await self._link("HGETALL", keys.file(file)))
        return describe(file, values) if values and values["owner"] == owner else None

    async def page(
        self, owner: str, after: str | None, limit: int, order: Order, purpose: str | None
    ) -> list[FileObject]:
        """Read an owner's files, ``limit`` at most; with ``after``, those that follow this id."""
        found: list[FileObject] = []
        while len(found) < limit:
            ids = await owned_ids(self._link, keys.files(owner), after, TRIP_FILES, order)
            raws = await self._link.many([("HGETALL", keys.file(each)) for each in ids])
            files = [describe(each, texts(raw)) for each, raw in zip(ids, raws, strict=True) if raw]
            found += [file for file in files if purpose in (None, file.purpose)]
            if len(ids) < TRIP_FILES:
                break
            after = ids[-1]
        return found[:limit]

    async def forget(self, file: str, owner: str) -> None:
        """Forget a file. The caller then deletes its content and calls ``retired``."""
        commands = [("ZADD", keys.RETIRING, 0, file), ("ZREM", keys.files(owner), file), ("DEL", keys.file(file))]
        await self._link.run("write", commands=commands)

    async def retire(self) -> list[str]:
        """Forget files and batches whose time is over, and return their ids. The content of the files still exists."""
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
        """Note the files whose content is deleted, and those whose content could not be deleted yet."""
        again = await self._link.now_ms() + RETIRE_AGAIN_MS
        if done:
            await self._link("ZREM", keys.RETIRING, *done)
        if failed:
            commands = [("ZADD", keys.RETIRING, *(part for each in failed for part in (again, each)))]
            await self._link.run("write", commands=commands)

    async def known(self, files: list[str]) -> list[bool]:
        """Return for each file whether it is registered."""
        return [bool(each) for each in await self._link.many([("EXISTS", keys.file(file)) for file in files])]


async def owned_ids(link: CommonLink, key: str, after: str | None, limit: int, order: Order) -> list[str]:
    """Read ids in an owner's list after the id ``after``, which may no longer exist; ids sort by time."""
    if order == "desc":
        command = ("ZREVRANGEBYLEX", key, "+" if after is None else f"({after}", "-")
    else:
        command = ("ZRANGEBYLEX", key, "-" if after is None else f"({after}", "+")
    return [each.decode() for each in await link(*command, "LIMIT", 0, limit)]


def describe(file: str, values: Mapping[str, str]) -> FileObject:
    """Return a file as callers see it, from its hash."""
    return FileObject(
        id=file,
        bytes=int(values["bytes"]),
        created_at=int(values["created_ms"]) // 1000,
        expires_at=int(values["expires_ms"]) // 1000,
        filename=values["filename"],
        purpose=cast(Purpose, values["purpose"]),
    )
