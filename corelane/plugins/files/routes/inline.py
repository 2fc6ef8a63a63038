"""The body of a new batch, read as a stream: `requests`, if it has them, become a file as they arrive."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager

import orjson

from api.requests import read_json
from corelane.domain.batches import BatchRequest
from corelane.errors import InvalidInput, StoreUnavailable, TooLarge
from corelane.plugins.files.routes.multipart import WRITE_BYTES
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.batches import NewFile
from corelane.plugins.files.store.files import file_fields
from corelane.settings import Settings
from corelane.store.file_storage import Storage, Writer
from corelane.store.jobs.idempotency import Digest
from corelane.submitting.ndjson import InputLine, read_line

#: The list's beginning, which no text holds unescaped; a text's characters; what ends a request; what may be in one.
LIST, TEXT = re.compile(rb'(?<!\\)"requests"\s*:\s*\['), re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
ENDS, MARKS = re.compile(rb'["{}\[\],]'), re.compile(rb'["{}\[\]]')


class BatchReader(AbstractAsyncContextManager["BatchReader"]):
    """Reads one body. Its file is deleted at the end of the `async with` block, unless it ``is_kept``."""

    def __init__(self, settings: Settings, storage: Storage, name: str) -> None:
        self._settings, self._storage, self._name = settings, storage, name
        self._most_lines = settings.of(FilesFields).max_file_lines
        #: The file that the requests became, if there were any; and whether a batch has it.
        self.file: NewFile | None = None
        self.is_kept, self._bytes, self._lines = False, 0, 0
        self._writer: Writer | None = None
        #: The body before its requests; and what is held of it: the beginning of a request, or what is of none.
        self._before, self._held = b"", bytearray()
        self._at, self._depth, self._is_in_text = 0, 0, False

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        # After these errors a batch may have the file; if none has, the keeper deletes it as unknown.
        may_be_kept = self.is_kept or isinstance(error, StoreUnavailable | asyncio.CancelledError)
        if self._writer is not None and not may_be_kept:
            await asyncio.to_thread(self._writer.discard)

    async def read(self, body: AsyncIterator[bytes], digest: Digest) -> BatchRequest:
        """Return the body without the requests that are in the file; raise InvalidInput, TooLarge or StorageFailed."""
        piece = bytearray()
        async for chunk in body:
            digest.update(chunk)
            piece += chunk
            if len(piece) >= WRITE_BYTES:
                await asyncio.to_thread(self._write, bytes(piece))
                piece.clear()
        return await asyncio.to_thread(self._finish, bytes(piece))

    def _write(self, piece: bytes) -> None:
        """Write the requests that end in a piece, one a line."""
        self._held += piece
        most = self._settings.max_body_bytes
        for text in self._cut():
            self._lines += 1
            if self._lines > self._most_lines:
                raise TooLarge(f"a batch has at most {self._most_lines:,} requests; send several")
            read_line(self._settings, InputLine(self._lines, text if len(text) <= most else None), "request")
            self._writer = self._writer or self._storage.create(self._name)
            line = text.strip().replace(b"\n", b" ") + b"\n"  # line feeds in JSON are white space
            self._bytes += len(line)
            self._writer.write(line)
        if len(self._held) > most:
            read_line(self._settings, InputLine(self._lines, None), "what follows request")

    def _cut(self) -> Iterator[bytes]:
        """Yield the requests that are held, and keep the rest."""
        held, begin = self._held, 0
        if not self._before and (found := LIST.search(held)):
            self._before, self._depth = bytes(held[: found.end()]), 1
            begin = self._at = found.end()
        while self._depth:
            if self._is_in_text:
                self._at = TEXT.match(held, self._at).end()  # type: ignore[union-attr]  # it matches no character, too
                if held[self._at : self._at + 1] != b'"':
                    break
                self._is_in_text, self._at = False, self._at + 1
            if (found := (ENDS if self._depth == 1 else MARKS).search(held, self._at)) is None:
                self._at = len(held)
                break
            self._at, mark = found.end(), found[0]
            self._is_in_text = mark == b'"'
            self._depth += (mark in b"{[") - (mark in b"}]")
            if mark == b"," or not self._depth:
                if mark == b"," or self._lines or held[begin : found.start()].strip():
                    yield bytes(held[begin : found.start()])
                begin = self._at if self._depth else found.start()
        del held[:begin]
        self._at -= begin

    def _finish(self, piece: bytes) -> BatchRequest:
        self._write(piece)
        try:
            request: BatchRequest = read_json(self._settings, self._before + self._held, BatchRequest)
        except orjson.JSONDecodeError as error:
            raise InvalidInput(f"the body is not JSON in UTF-8, or broke off: {error.msg}") from None
        if self._writer is not None:
            self._writer.close()
            ttl_ms = 1000 * self._settings.of(FilesFields).files_ttl_s
            self.file = NewFile(self._writer.name, ttl_ms, file_fields("batch", "requests.jsonl", self._bytes))
        return request
