"""Read one input from its URL into files of items, in parts. Each part is noted when it is complete.

If the keeper dies, another continues after the last part, in the same version of the object. It requests a range if the
lines are plain, or else skips the lines that were read. The job begins after the last part, so no item is fed twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from corelane.domain.job_references import without_query
from corelane.domain.jobs import Item
from corelane.errors import InputFailed, InvalidInput, SetupError, StorageFailed
from corelane.log import get_logger
from corelane.plugins.files.references.content import bounded, read_document, unpacked
from corelane.plugins.files.references.fetch import INPUT_TIMEOUT_S
from corelane.plugins.files.references.objects import ReferenceFailed, open_object
from corelane.plugins.files.references.urls import format_of, is_packed
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.references import ReadProgress, ReferenceStore
from corelane.settings import Settings
from corelane.store.file_storage import Writer
from corelane.store.item_files import ELSEWHERE, ItemFiles, part_name
from corelane.store.jobs.records import JobRecord
from corelane.submitting.items import BadItem, ItemChecker, ItemWriter
from corelane.submitting.ndjson import InputLine, check_line, cut_lines, read_head, read_line
from corelane.tasks.registry import task_named

log = get_logger(__name__)

#: Most items that are read from one URL; their results wait in Redis, some 200 bytes each.
MOST_ITEMS = 1_000_000

#: The field of a head that has the texts which items share.
SHARED = "contexts"

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
            self._copy(record, record.input_url)
        except Overtaken:
            return
        except (InputFailed, InvalidInput) as error:
            self._fail(record, error.detail)
        except (ReferenceFailed, StorageFailed, SetupError) as error:
            self._try_again(record, str(error))

    def _copy(self, record: JobRecord, url: str) -> None:
        """Copy an input into the parts of the job's file, from where the last part ended, and let the job begin."""
        texts, refuses = self._store.shared_texts(record), record.invalid_items == "refuse"
        checker = ItemChecker(self._settings, texts, record.options, refuses=refuses)
        with Parts(self._store, self._files, record.id, checker, self._part_bytes) as parts:
            before = parts.done
            is_plain = not is_packed(url) and format_of(url) == "ndjson"
            start = before.bytes if is_plain else 0
            with open_object(self._settings, url, record.owner, start, before.etag) as opened:
                parts.note(replace(before, etag=opened.etag, state="reading", error=None))
                chunks = bounded(self._until_stopped(opened.chunks), self._limits.max_input_bytes)
                if is_packed(url):
                    chunks = bounded(unpacked(chunks), self._limits.max_input_bytes)
                if format_of(url) == "json":
                    self._copy_document(record, chunks, checker, parts)
                else:
                    passed = before.lines if opened.start == before.bytes else 0
                    lines = cut_lines(chunks, self._settings.max_body_bytes, opened.start, passed)
                    self._copy_lines(record, lines, checker, parts)
            done = parts.finish()
        log.info("input_read", job_id=record.id, url=without_query(url), items=done.items, bytes=done.bytes)

    def _copy_lines(self, record: JobRecord, lines: Iterator[InputLine], checker: ItemChecker, parts: "Parts") -> None:
        passed = parts.done.lines
        for line in lines:
            if line.number <= passed:
                continue
            if line.number == 1 and self._is_head(record, line, checker):
                parts.place = line.end, line.number
            else:
                parts.write(check_line(checker, line), line.end, line.number)

    def _is_head(self, record: JobRecord, line: InputLine, checker: ItemChecker) -> bool:
        try:
            value = read_line(self._settings, line)
        except InvalidInput:
            return False
        return self._take_head(record, "line 1", value, checker)

    def _copy_document(self, record: JobRecord, chunks: Iterator[bytes], checker: ItemChecker, parts: "Parts") -> None:
        """Copy a list of items, or an object with ``items`` and perhaps the texts that they share."""
        items = read_document(chunks, self._settings.max_body_bytes)
        if isinstance(items, dict) and "items" in items:
            head = {name: value for name, value in items.items() if name != "items"}
            items = items["items"]
            if head and not self._take_head(record, "the document", head, checker):
                raise InputFailed(beside_items(next(iter(head))))
            if not isinstance(items, list):
                raise InputFailed("`items` of the input must be a list")
        if not isinstance(items, list):
            raise InputFailed("the input must be a list of items, or an object with `items`")
        for number, value in enumerate(items, 1):
            if number > parts.done.lines:
                parts.write(checker.check(f"item {number - 1}", value), 0, number)

    def _take_head(self, record: JobRecord, where: str, value: Any, checker: ItemChecker) -> bool:
        """Take the texts that items share, or return False if the value is an item; raise InvalidInput."""
        if not isinstance(value, dict) or SHARED not in value:
            return False
        head = read_head(self._settings, task_named(record.options.task), where, value)
        if head is None:
            return False
        if others := sorted(head.model_fields_set - {SHARED}):
            raise InputFailed(beside_items(others[0]))
        if head.shared_texts and checker.texts not in ({}, head.shared_texts):
            raise InputFailed(f"the request has `{SHARED}`, and so has the input: leave one of them out")
        if head.shared_texts:
            checker.share(head.shared_texts)
            self._store.keep_texts(record, checker.texts)
        return True

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
        """Note why an attempt failed; give up when the time for attempts is over."""
        if self._store.now_ms() - record.created_ms > 1000 * INPUT_TIMEOUT_S:
            self._fail(record, f"{reason}; it was tried for {INPUT_TIMEOUT_S:g} s")
            return
        before, progress = self._store.progress(record.id)
        pause_s = min(PAUSE_S * 2**progress.attempts, LONGEST_PAUSE_S)
        log.info("input_waits", job_id=record.id, detail=reason, pause_s=pause_s)
        after = replace(progress, attempts=progress.attempts + 1, error=reason)
        self._store.note_input(record.id, before, after, pause_s)


def beside_items(name: str) -> str:
    """Return the error's text for a field of an input that belongs into the request."""
    return f"the input has {name[:64]!r} beside its items: put it into the request"


class Parts:
    """The parts of one job's file, written one after another; ``done`` is how far the last complete part reaches."""

    def __init__(
        self, store: ReferenceStore, files: ItemFiles, job: str, checker: ItemChecker, part_bytes: int
    ) -> None:
        self._store, self._files, self._job = store, files, job
        self._checker, self._part_bytes = checker, part_bytes
        self._file = f"{ELSEWHERE}{job}.jsonl"
        self._noted, self.done = store.progress(job)
        #: Where the line after the last one begins, and the number of lines before it.
        self.place = self.done.bytes, self.done.lines
        self._writer: Writer | None = None
        self._rows: ItemWriter | None = None

    def __enter__(self) -> "Parts":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error, stop writing: another keeper may write a part of the same name."""
        if kind is not None and self._writer is not None:
            self._writer.abort()

    def write(self, found: Item | BadItem, end: int, lines: int) -> None:
        """Add an item, or its error; ``end`` and ``lines`` say where the next line begins."""
        rows = self._rows or self._begin()
        if self.done.items + rows.items == MOST_ITEMS:
            raise InputFailed(f"the input has more than {MOST_ITEMS:,} items")
        rows.write(found)
        self.place = end, lines
        if rows.bytes >= self._part_bytes:
            self.note(self._end(rows))

    def finish(self) -> ReadProgress:
        """Complete the last part, let the job begin, and return how much was read."""
        done = self.done if self._rows is None else self._end(self._rows)
        if not done.items:
            raise InputFailed("the input has no items")
        if not self._store.begin_items(self._job, self._noted, done, self._file):
            raise Overtaken
        return done

    def note(self, progress: ReadProgress) -> None:
        """Note how far the input was read; raise Overtaken if it is no longer this reader's."""
        if not self._store.note_input(self._job, self._noted, progress):
            raise Overtaken
        self._noted, self.done = progress.encode(), progress

    def _begin(self) -> ItemWriter:
        storage, name = self._files.place(self._file), part_name(self._file, len(self.done.parts))
        storage.delete(name)
        self._writer = storage.create(name)
        self._rows = ItemWriter(self._checker, self._writer)
        return self._rows

    def _end(self, rows: ItemWriter) -> ReadProgress:
        """Complete a part; return the progress with it."""
        rows.flush()
        if self._writer is not None:
            self._writer.close()
        self._writer = self._rows = None
        end, lines = self.place
        return replace(
            self.done,
            bytes=end,
            lines=lines,
            items=self.done.items + rows.items,
            tokens=self.done.tokens + rows.tokens,
            parts=(*self.done.parts, rows.bytes),
        )
