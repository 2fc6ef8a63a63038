"""Read one input from its URL into files of items, in parts. Each part is noted when it is complete.

If the keeper dies, another continues after the last part, in the same version of the object. It requests a range if the
lines are plain, or else skips the lines that were read. The job begins after the last part, so no item is fed twice.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import orjson

from corelane.domain.job_references import without_query
from corelane.errors import InputFailed, InvalidInput, SetupError, StorageFailed
from corelane.log import get_logger
from corelane.plugins.files.references.fetch import INPUT_TIMEOUT_S
from corelane.plugins.files.references.lines import bounded, items_of, read_document, take_head, unpacked
from corelane.plugins.files.references.objects import Opened, ReferenceFailed, open_object
from corelane.plugins.files.references.urls import format_of, is_packed
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.references import ReadProgress, ReferenceStore
from corelane.settings import Settings
from corelane.store.file_storage import Writer
from corelane.store.item_files import ELSEWHERE, ItemFiles, part_name
from corelane.store.jobs.records import JobRecord
from corelane.submitting.items import ItemChecker
from corelane.submitting.lines import cut_lines

log = get_logger(__name__)

#: Most items that are read from one URL; their results wait in Redis, some 200 bytes each.
MOST_ITEMS = 1_000_000

#: A part is complete at this size, in bytes. No more than this is read again after a keeper's death.
PART_BYTES = 32 * 1024 * 1024

#: Pause before the second attempt, in seconds; doubled each time up to the longest.
PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class Overtaken(Exception):
    """The job is final, or another keeper reads its input: this reader must not write any more."""


class InputReader:
    """Reads one job's input."""

    def __init__(
        self,
        settings: Settings,
        store: ReferenceStore,
        should_stop: Callable[[], bool],
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._settings, self._store, self._should_stop = settings, store, should_stop
        self._limits = settings.of(FilesFields)
        self._part_bytes = part_bytes
        self._files = ItemFiles(settings)

    def read(self, job: str) -> None:
        """Read a job's input. If it fails, the job gets the reason, and is tried again or ends."""
        record = self._store.get(job)
        if record is None or record.status.is_final or record.input_url is None:
            self._store.let_go(job)
            if record is None or record.file is None:
                self._files.delete(job)
            return
        try:
            parts = _Parts(self._settings, self._store, self._files, record, self._part_bytes)
            try:
                self._read(record, record.input_url, parts)
            except BaseException:
                parts.abort()
                raise
        except Overtaken:
            return
        except (InputFailed, InvalidInput) as error:
            self._fail(record, error.detail)
        except (ReferenceFailed, StorageFailed, SetupError) as error:
            self._try_again(record, str(error))

    def _read(self, record: JobRecord, url: str, part: "_Parts") -> None:
        settings, before, most_bytes = self._settings, part.done, self._limits.max_input_bytes
        is_plain = not is_packed(url) and format_of(url) == "ndjson"
        start = before.bytes if is_plain else 0
        with open_object(settings, url, record.owner, start, before.etag) as opened:
            part.pin(opened.etag)
            chunks = bounded(self._until_stopped(opened.chunks), most_bytes)
            if is_packed(url):
                chunks = bounded(unpacked(chunks), most_bytes)
            checker = ItemChecker(
                settings,
                self._store.shared_texts(record),
                record.options,
                refuses=record.invalid_items == "refuse",
            )
            if format_of(url) == "json":
                self._keep_document(record, chunks, checker, part)
            else:
                self._keep_lines(record, opened, chunks, checker, part)
        if part.done.items == 0:
            raise InputFailed("the input has no items")
        part.finish()
        log.info("input_read", job_id=record.id, url=without_query(url), items=part.done.items, bytes=part.done.bytes)

    def _keep_lines(
        self, record: JobRecord, opened: Opened, chunks: Iterator[bytes], checker: ItemChecker, part: "_Parts"
    ) -> None:
        passed = part.done.lines
        before = passed if opened.start == part.done.bytes else 0
        for line in cut_lines(chunks, self._settings.max_body_bytes, opened.start, before):
            number = line.number
            if number <= passed:
                continue
            if number == 1 and line.text is not None and self._is_head(record, line.text, checker):
                part.pass_over(line.end, number)
                continue
            part.keep(*checker.row(checker.check_line(number, line.text)), line.end, number)

    def _is_head(self, record: JobRecord, text: bytes, checker: ItemChecker) -> bool:
        with suppress(orjson.JSONDecodeError):
            if take_head(self._settings, checker, orjson.loads(text)):
                self._store.keep_texts(record, checker.texts)
                return True
        return False

    def _keep_document(self, record: JobRecord, chunks: Iterator[bytes], checker: ItemChecker, part: "_Parts") -> None:
        items = items_of(self._settings, read_document(chunks, self._settings.max_body_bytes), checker)
        if checker.texts:
            self._store.keep_texts(record, checker.texts)
        for number, value in enumerate(items, 1):
            if number > part.done.lines:
                part.keep(*checker.row(checker.check(f"item {number - 1}", value)), 0, number)

    def _until_stopped(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._should_stop():
                raise Overtaken
            yield chunk

    def _fail(self, record: JobRecord, detail: str) -> None:
        log.info("input_failed", job_id=record.id, detail=detail)
        before, progress = self._store.progress(record.id)
        self._store.note_input(record.id, before, replace(progress, state="failed", error=detail))
        self._store.fail(record.id, InputFailed.code, detail)
        self._store.let_go(record.id)
        self._files.delete(record.id)

    def _try_again(self, record: JobRecord, reason: str) -> None:
        """Note why an attempt failed; give up when the job's time for it is over."""
        if self._store.now_ms() - record.created_ms > 1000 * INPUT_TIMEOUT_S:
            self._fail(record, f"{reason}; it was tried for {INPUT_TIMEOUT_S:g} s")
            return
        before, progress = self._store.progress(record.id)
        pause_s = min(PAUSE_S * 2**progress.attempts, LONGEST_PAUSE_S)
        log.info("input_waits", job_id=record.id, detail=reason, pause_s=pause_s)
        after = replace(progress, attempts=progress.attempts + 1, error=reason)
        self._store.note_input(record.id, before, after, pause_s)


class _Parts:
    """The files of one job's items while they are written; ``done`` is the progress."""

    def __init__(
        self, settings: Settings, store: ReferenceStore, files: ItemFiles, record: JobRecord, part_bytes: int
    ) -> None:
        self._settings, self._store, self._files, self._job = settings, store, files, record.id
        self._part_bytes = part_bytes
        self._file = f"{ELSEWHERE}{record.id}.jsonl"
        self._noted, self.done = store.progress(record.id)
        self._writer: Writer | None = None
        self._size = 0

    def pin(self, etag: str) -> None:
        """Note the version that is being read."""
        self._note(replace(self.done, etag=etag, state="reading", error=None))

    def keep(self, row: bytes, tokens: int, end: int, lines: int) -> None:
        """Add a line; ``end`` and ``lines`` tell where the next line begins."""
        most = MOST_ITEMS
        if self.done.items >= most:
            raise InputFailed(f"the input has more than {most:,} items")
        if self._writer is None:
            self._writer = self._begin_part()
        self._writer.write(row)
        self._size += len(row)
        self.done = replace(
            self.done, bytes=end, lines=lines, items=self.done.items + 1, tokens=self.done.tokens + tokens
        )
        if self._size >= self._part_bytes:
            self._end_part()
            self._note(self.done)

    def pass_over(self, end: int, lines: int) -> None:
        """Count an invalid line without writing it."""
        self.done = replace(self.done, bytes=end, lines=lines)

    def finish(self) -> None:
        """Complete the last part, and let the job begin."""
        if self._size:
            self._end_part()
        if not self._store.begin_items(self._job, self._noted, self.done, self._file):
            raise Overtaken

    def abort(self) -> None:
        """Discard the part that is being written; another keeper may write one of the same name."""
        if self._writer is not None:
            self._writer.abort()

    def _begin_part(self) -> Writer:
        storage, name = self._files.place(self._file), part_name(self._file, len(self.done.parts))
        storage.delete(name)
        return storage.create(name)

    def _end_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self.done, self._size = replace(self.done, parts=(*self.done.parts, self._size)), 0

    def _note(self, progress: ReadProgress) -> None:
        if not self._store.note_input(self._job, self._noted, progress):
            raise Overtaken
        self._noted, self.done = progress.encode(), progress
