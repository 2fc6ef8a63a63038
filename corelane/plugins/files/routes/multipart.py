"""Forms (multipart/form-data): the file is written to the storage as it arrives. It is never completely in memory."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from corelane.errors import InvalidInput, TooLarge
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.store.file_storage import Storage, Writer

#: The file is buffered up to this size before it is written, in bytes.
WRITE_BYTES = 1024 * 1024

#: Most bytes of one field, and most fields, of a form.
MAX_FIELD_BYTES, MAX_FIELDS = 1024, 16

#: The form's field with the file.
FILE_FIELD = "file"


class FormReader:
    """Reads one form, once. Then it has the form's fields and the facts about its file."""

    def __init__(self, settings: Settings, storage: Storage, name: str) -> None:
        """Write the file to the storage under ``name``; the caller deletes it there if it is not needed."""
        self._limits = settings.of(FilesFields)
        self._storage, self._name = storage, name
        self.fields: dict[str, str] = {}
        #: The file's name; None before a file has arrived.
        self.filename: str | None = None
        self.bytes = 0
        #: Number of complete lines that are not blank.
        self.lines = 0
        self._part = ""
        self._is_file = False
        #: The names and values of a part's headers, each value after its name, in pieces.
        self._headers: list[tuple[bytearray, bytearray]] = []
        self._field, self._pending = bytearray(), bytearray()
        self._in_line = False
        self._is_whole = False

    async def read(self, content_type: str, body: AsyncIterator[bytes]) -> Self:
        """Return the form once its file is stored; after InvalidInput, TooLarge or StorageFailed no file is left."""
        parser = self._parser(content_type)
        writer = await asyncio.to_thread(self._storage.create, self._name)
        try:
            async for chunk in body:
                try:
                    parser.write(chunk)
                except FormParserError as error:
                    raise InvalidInput(f"the form cannot be read: {error}") from None
                if len(self._pending) >= WRITE_BYTES:
                    await self._flush(writer)
            self._require_whole()
            await self._flush(writer)
            await asyncio.to_thread(writer.close)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(writer.discard))
            raise
        return self

    def require_few_lines(self) -> None:
        """Raise TooLarge for a file of more lines than a batch takes."""
        if self.lines + self._in_line > self._limits.max_file_lines:
            raise TooLarge(
                f"the file has more than {self._limits.max_file_lines:,} lines; "
                "send several files, or raise CORELANE_MAX_FILE_LINES"
            )

    def _parser(self, content_type: str) -> MultipartParser:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise InvalidInput("send a form (multipart/form-data) with the fields `purpose` and `file`")
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_begin": self._begin_header,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_end": self._end_form,
            },
        )

    def _require_whole(self) -> None:
        if not self._is_whole:
            raise InvalidInput("the form broke off before its end")
        if self.filename is None:
            raise InvalidInput("the form has no `file`; send a file of that name")

    async def _flush(self, writer: Writer) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        await asyncio.to_thread(self._write, writer, data)

    def _write(self, writer: Writer, data: bytes) -> None:
        writer.write(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self.lines += self._in_line or bool(line.strip())
            self._in_line = False
        self._in_line = self._in_line or bool(rest.strip())

    def _begin(self) -> None:
        self._headers, self._field = [], bytearray()

    def _begin_header(self) -> None:
        self._headers.append((bytearray(), bytearray()))

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._headers[-1][0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._headers[-1][1].extend(data[start:end])

    def _end_headers(self) -> None:
        values = {bytes(name).lower(): bytes(value) for name, value in self._headers}
        _, options = parse_options_header(values.get(b"content-disposition", b""))
        self._part = options.get(b"name", b"").decode(errors="replace")
        self._is_file = self._part == FILE_FIELD
        if not self._is_file:
            return
        if self.filename is not None:
            raise InvalidInput("the form has more than one `file`; send one at a time")
        name = options.get(b"filename", b"").decode(errors="replace").rpartition("/")[2]
        self.filename = name[:255] or "file.jsonl"

    def _data(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            self._field += data[start:end]
            if len(self._field) > MAX_FIELD_BYTES:
                raise InvalidInput(f"the form's field {self._part[:64]!r} has more than {MAX_FIELD_BYTES:,} bytes")
            return
        self._pending += data[start:end]
        self.bytes += end - start
        if self.bytes > self._limits.max_file_bytes:
            raise TooLarge(
                f"the file has more than {self._limits.max_file_bytes:,} bytes; "
                "send several files, or raise CORELANE_MAX_FILE_BYTES"
            )

    def _end(self) -> None:
        if self._is_file:
            return
        if self._part in self.fields:
            raise InvalidInput(f"the form has more than one field {self._part[:64]!r}")
        if len(self.fields) >= MAX_FIELDS:
            raise InvalidInput(f"the form has more than {MAX_FIELDS} fields")
        self.fields[self._part] = self._field.decode(errors="replace")

    def _end_form(self) -> None:
        self._is_whole = True
