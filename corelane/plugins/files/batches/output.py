"""The output of a batch: each line of the plan gets its outcome, in the output file or in the error file.

Both files have new ids, which become known only in the step that ends the batch. If the keeper dies before that step,
or another keeper takes it first, nothing refers to the files, and they are deleted.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from corelane.domain.batches import BatchError, BatchStatus, RequestCounts
from corelane.domain.ids import new_id
from corelane.domain.jobs import JobStatus
from corelane.errors import NotFound, ResultsDropped, Unavailable
from corelane.plugins.files.batches.checking import PlannedLine
from corelane.plugins.files.batches.tools import BatchTools
from corelane.plugins.files.store.batches import BatchRecord, BatchStore, NewFile
from corelane.plugins.files.store.files import file_fields
from corelane.store.file_storage import Storage, Writer
from corelane.store.item_files import ItemFiles, LineError, split_lines
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.tasks.dialects import Told, plain
from corelane.tasks.registry import DIALECTS

#: Results read in one page.
PAGE = 500

#: Statuses of results that stay as they are, whatever becomes of the batch.
ANSWERED = (JobStatus.SUCCEEDED, JobStatus.FAILED)

#: Errors of lines without a result: first by the status of their batch, then by that of their job.
UNANSWERED = {
    "cancelled": ("batch_cancelled", "the batch was cancelled before this line was answered"),
    "expired": ("batch_expired", "the completion window ended before this line was answered"),
}
DROPPED = ("results_dropped", "the result of this line was dropped from its job before the batch had read it")
JOB_GONE = ("job_gone", "the job that was to process this line was deleted")
JOB_ENDED = {
    JobStatus.CANCELED: ("canceled", "the job that was to process this line was canceled"),
    JobStatus.EXPIRED: ("expired", "the job that was to process this line expired"),
}

Outcome = dict[str, Any] | None


async def conclude(tools: BatchTools, record: BatchRecord, to: BatchStatus, errors: Sequence[BatchError]) -> bool:
    """Write both files and end a batch; if its status has changed, delete the files and return False."""
    output, failures, is_kept = OutcomeFile(tools), OutcomeFile(tools), False
    try:
        counts = await _write(tools, record, to, output, failures)
        named = ((output, "output"), (failures, "errors"))
        files = [await asyncio.to_thread(each.close, record, name) for each, name in named]
        await tools.renew_lease()  # a slow storage may take longer to complete the files than the lease lasts
        fields: dict[str, Any] = {"counts": counts.model_dump()}
        if (now := await tools.batches.get(record.id)) is not None and now.used is not None:
            fields["usage"] = now.used.encode()
        if errors:
            fields["errors"] = [error.model_dump() for error in errors]
        for name, file in zip(("output_file", "error_file"), files, strict=True):
            if file is not None:
                fields[name] = file.id
        known = [file for file in files if file is not None]
        is_kept = await tools.batches.step(record, tools.name, to, fields, known, tools.limits.files_ttl_s)
    except Unavailable:
        # If Redis did not reply, the step may still have happened: the files that it made known must stay.
        is_kept = await _is_known(tools, output, failures)
        raise
    finally:
        if not is_kept:
            output.discard()
            failures.discard()
    if not is_kept:
        return False
    for group in record.groups:
        await tools.jobs.drop_final(group.job)
    await asyncio.to_thread(tools.clear, record)
    return True


async def _is_known(tools: BatchTools, *files: "OutcomeFile") -> bool:
    """Return whether a file may be registered. True if Redis is unreachable: the daily clean-up decides later."""
    ids = [file.writer.name for file in files if file.writer is not None]
    try:
        return any(await tools.files.known(ids))
    except Unavailable:
        return True


async def _write(
    tools: BatchTools, record: BatchRecord, to: BatchStatus, output: "OutcomeFile", failures: "OutcomeFile"
) -> RequestCounts:
    """Write each line's outcome into one of the files; return the counts."""
    counts = RequestCounts()
    async for page in outcome_pages(tools.jobs, tools.item_files, record, to):
        errors = [error for _, error in page if error is not None]
        counts.total += len(page)
        counts.completed += len(page) - len(errors)
        counts.failed += sum(error not in UNANSWERED.values() for error in errors)
        await asyncio.to_thread(output.add, b"".join(text for text, error in page if error is None))
        await asyncio.to_thread(failures.add, b"".join(text for text, error in page if error is not None))
        await tools.renew_lease()
    return counts


async def outcome_pages(
    jobs: JobStore, files: ItemFiles, record: BatchRecord, to: BatchStatus | None, after: int = 0
) -> AsyncIterator[list[tuple[bytes, LineError | None]]]:
    """Yield the outcomes of the lines after a number, in the order of the plan: texts, with errors of failed lines.

    ``to`` is the final status of the batch. If it is None, stop before the first line that has no outcome yet.
    """
    found = [None if group.refused is not None else await jobs.get(group.job) for group in record.groups]
    at, results = [0] * len(found), dict[int, Iterator[Outcome]]()
    plan = map(PlannedLine.decode, files.lines(record.plan, ())) if record.plan is not None else iter(())
    while lines := await asyncio.to_thread(cut_page, plan):
        new = [line for line in lines if line.number > after]
        for place, job in enumerate(found):
            mine = [line for line in lines if line.group == place]
            count = sum(line.items for line in mine if line.number > after)
            at[place] += sum(line.items for line in mine)
            results[place] = iter(await read_outcomes(jobs, job, at[place] - count, count))
        yield (page := await asyncio.to_thread(tell, record, found, to, new, results))
        if len(page) < len(new):
            return


def cut_page(planned: Iterator[PlannedLine]) -> list[PlannedLine]:
    """Take the next lines of a plan, until they have ``PAGE`` items; none if the plan was deleted."""
    lines, items = list[PlannedLine](), 0
    with suppress(NotFound):
        while items < PAGE and (line := next(planned, None)) is not None:
            lines.append(line)
            items += line.items
    return lines


async def read_outcomes(jobs: JobStore, record: JobRecord | None, at: int, count: int) -> list[Outcome]:
    """Read the results of a group's job from an item on; fewer than ``count`` if the rest has none."""
    if record is None:
        return []
    dropped = max(0, min(count, record.dropped - at))
    gone: list[Outcome] = [{"status": "dropped"}] * dropped
    return gone + await jobs.results(record, at + dropped, count - dropped)


def tell(
    record: BatchRecord,
    jobs: Sequence[JobRecord | None],
    to: BatchStatus | None,
    lines: Iterable[PlannedLine],
    results: Mapping[int, Iterator[Outcome]],
) -> list[tuple[bytes, LineError | None]]:
    """Return the outcomes of lines as for ``outcome_pages``; ``results`` has the next ones of each group."""
    told, dialect = list[tuple[bytes, LineError | None]](), DIALECTS[record.endpoint]
    for line in lines:
        error, job = line.error, None
        if line.group is not None and line.group in results:
            job, error = jobs[line.group], record.groups[line.group].refused
            found = [next(results[line.group], None) for _ in range(line.items)]
            if to is None and error is None and not all(each and each["status"] in ANSWERED for each in found):
                break
            error = error or next(filter(None, (error_of(each, to) for each in found)), None)
        elif error is None:
            error = UNANSWERED.get(to or "", JOB_GONE)
        if job is not None and error is None:
            known = Told(request_id(record.id, line), job.version)
            text = outcome_line(record.id, line, dialect.reply(None, [each for each in found if each], known))
        else:
            text = outcome_line(record.id, line, None, error := error or JOB_GONE)
        told.append((text, error))
    return told


def error_of(result: Outcome, to: BatchStatus | None) -> LineError | None:
    """Return the error of a line without a result; None if the line has one."""
    if result is None:
        return UNANSWERED.get(to or "", JOB_GONE)
    status = result["status"]
    if status == JobStatus.SUCCEEDED:
        return None
    if status == "dropped":
        return DROPPED
    if (to, status) in (("cancelled", "canceled"), ("expired", "expired"), ("cancelled", "expired")):
        return UNANSWERED[to or ""]
    if result["error"] is not None:
        return result["error"]["code"], result["error"]["detail"]
    return JOB_ENDED.get(JobStatus(status), JOB_GONE)


async def growing_lines(
    jobs: JobStore, batches: BatchStore, files: ItemFiles, record: BatchRecord, after: int
) -> AsyncIterator[bytes]:
    """Yield pages of the outcomes that an open batch has after a line; none of what it lost because it ended."""
    with suppress(ResultsDropped):
        async for page in outcome_pages(jobs, files, record, None, after):
            # The results are dropped after the batch has ended, so what was read while it is open is whole.
            if not any(not now.is_final for now in await batches.get_all([record.id])):
                return
            yield b"".join(text for text, _ in page)


def final_lines(storage: Storage, record: BatchRecord, after: int) -> Iterator[bytes]:
    """Return pages of the outcomes in both files of a batch after a line; raise NotFound if a file was deleted."""
    files = [storage.read(file) for file in (record.output_file, record.error_file) if file is not None]
    lines = (text for number, text in heapq.merge(*map(numbered, files)) if number > after)
    return iter(lambda: b"".join(islice(lines, PAGE)), b"")


def numbered(content: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that a batch wrote, each with the number of its line in the input."""
    for text in split_lines(lambda _: next(content, b""), 0):
        yield orjson.loads(text)["line"], text


@dataclass
class OutcomeFile:
    """A file that is created with its first lines; without any it is not created."""

    tools: BatchTools
    writer: Writer | None = None
    size: int = 0

    def add(self, lines: bytes) -> None:
        """Write more lines."""
        if self.writer is None and lines:
            self.writer = self.tools.storage.create(new_id("file", cell=self.tools.settings.cell))
        if self.writer is not None:
            self.writer.write(lines)
        self.size += len(lines)

    def close(self, record: BatchRecord, name: str) -> NewFile | None:
        """Complete the file in the storage; return its record, or None without lines."""
        if self.writer is None:
            return None
        self.writer.close()
        ttl_s = record.output_ttl_s or self.tools.limits.files_ttl_s
        fields = file_fields("batch_output", f"{record.id}_{name}.jsonl", self.size)
        return NewFile(self.writer.name, ttl_s * 1000, fields)

    def discard(self) -> None:
        """Delete the file."""
        if self.writer is not None:
            self.writer.discard()


def outcome_line(batch: str, line: PlannedLine, body: Any, error: LineError | None = None) -> bytes:
    """Return a line of the output file, with the reply as the dialect's route returns it, or of the error file."""
    request = request_id(batch, line)
    outcome = {
        "id": request,
        "custom_id": line.custom_id,
        "line": line.number,
        "response": {"status_code": 200, "request_id": request, "body": body} if error is None else None,
        "error": None if error is None else {"code": error[0], "message": error[1]},
    }
    return orjson.dumps(outcome, default=plain, option=orjson.OPT_APPEND_NEWLINE)


def request_id(batch: str, line: PlannedLine) -> str:
    """Return the id of a line. It is the same each time the line's outcome is written."""
    return f"batch_req_{batch.removeprefix('batch_')}_{line.number}"
