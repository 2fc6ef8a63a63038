"""Write one output: the results of a final job, as lines in item order, to its URL.

The object is written completely or not at all. If the keeper dies after writing it and before noting that, another
keeper writes the same bytes again.
"""

import gzip
from collections.abc import Callable
from typing import Any, BinaryIO

import orjson

from corelane.domain.job_references import without_query
from corelane.errors import OutputFailed, ResultsDropped, SetupError
from corelane.log import get_logger
from corelane.plugins.files.references.objects import ReferenceFailed, write_object
from corelane.plugins.files.references.urls import is_packed
from corelane.plugins.files.store.references import ReferenceStore
from corelane.settings import Settings
from corelane.store.jobs.records import JobRecord

log = get_logger(__name__)

#: Results read in one page.
PAGE_ITEMS = 1000

#: Pause before the second attempt, in seconds; doubled each time up to the longest.
PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0

#: How long after its job's end an output is tried, in seconds. Then its results must be read from the service.
TRIED_S = 24 * 3600

#: A job is kept for this long after the time of the next attempt, in seconds.
HELD_S = 3600

NDJSON, GZIP = "application/x-ndjson", "application/gzip"


class Stopped(Exception):
    """The keeper is about to stop: the next one starts again."""


class OutputWriter:
    """Writes the results of jobs."""

    def __init__(self, settings: Settings, store: ReferenceStore, should_stop: Callable[[], bool]) -> None:
        self._settings, self._store, self._should_stop = settings, store, should_stop

    def write(self, job: str) -> None:
        """Write a job's results. If that fails, note why; the output is then tried again."""
        record = self._store.get(job)
        attempts = 0 if record is None or record.output is None else int(record.output.get("attempts", 0))
        if record is None or record.output_url is None:
            self._store.note_output(job, {"state": "failed"})
            return
        if record.output is not None and record.output.get("state") == "written":
            self._store.note_output(job, record.output)
            return
        attempt = {"attempts": attempts + 1}
        try:
            size = self._write(record, record.output_url)
        except Stopped:
            return
        except (ReferenceFailed, OutputFailed, ResultsDropped, SetupError) as error:
            self._note_failure(record, attempt, error)
        else:
            self._store.note_output(job, attempt | {"state": "written", "bytes": size})
            log.info("output_written", job_id=job, url=without_query(record.output_url), bytes=size)

    def _write(self, record: JobRecord, url: str) -> int:
        content_type = GZIP if is_packed(url) else NDJSON

        def write(file: BinaryIO) -> None:
            if not is_packed(url):
                self._write_lines(record, file)
                return
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                self._write_lines(record, packed)

        return write_object(self._settings, url, record.owner, write, content_type)

    def _write_lines(self, record: JobRecord, file: Any) -> None:
        at = 0
        while at < record.total:
            if self._should_stop():
                raise Stopped
            page = self._store.results(record, at, PAGE_ITEMS)
            if not page:
                raise ReferenceFailed("the results cannot be read to their end")
            file.write(b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in page))
            at += len(page)

    def _note_failure(self, record: JobRecord, attempt: dict[str, Any], error: Exception) -> None:
        ended_ms = record.finished_ms or record.created_ms
        is_over = self._store.now_ms() - ended_ms > 1000 * TRIED_S
        is_last = is_over or isinstance(error, OutputFailed | ResultsDropped)
        pause_s = min(PAUSE_S * 2 ** min(attempt["attempts"] - 1, 20), LONGEST_PAUSE_S)
        found = attempt | {"state": "failed" if is_last else "writing", "error": str(error)}
        log.warning("output_not_written", job_id=record.id, detail=str(error), is_last=is_last)
        hold_s = int(pause_s) + HELD_S
        self._store.note_output(record.id, found, retry_s=None if is_last else pause_s, hold_s=hold_s)
