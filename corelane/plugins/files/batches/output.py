"""The output of a batch: each line of the plan gets its outcome, in the output file or in the error file.

Both files have new ids, which become known only in the step that ends the batch. If the keeper dies before that step,
or another keeper takes it first, nothing refers to the files, and they are deleted.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.domain.batches import BatchError, BatchStatus, RequestCounts
from corelane.domain.ids import new_id
from corelane.domain.jobs import JobStatus
from corelane.errors import Unavailable
from corelane.plugins.files.batches.checking import PlannedLine
from corelane.plugins.files.batches.tools import BatchTools
from corelane.plugins.files.store.batches import BatchRecord, NewFile
from corelane.plugins.files.store.files import file_fields
from corelane.store.file_storage import Writer
from corelane.store.jobs.records import JobRecord
from corelane.tasks.dialects import Told, plain
from corelane.tasks.registry import DIALECTS

#: Results read in one page.
PAGE = 500

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


async def conclude(tools: BatchTools, record: BatchRecord, to: BatchStatus, errors: Sequence[BatchError] = ()) -> bool:
    """Write both files and end a batch; if its status has changed, delete the files and return False."""
    output, failures, is_kept = OutcomeFile(tools), OutcomeFile(tools), False
    try:
        counts = await _write(tools, record, to, output, failures)
        files = [each.close(record, name) for each, name in ((output, "output"), (failures, "errors"))]
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
    tools.clear(record)
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
    counts, dialect = RequestCounts(), DIALECTS[record.endpoint]
    jobs = [None if group.refused is not None else await tools.jobs.get(group.job) for group in record.groups]
    sources = [outcomes(tools, job) for job in jobs]
    for text in tools.plan_lines(record):
        line = PlannedLine.decode(text)
        counts.total += 1
        code, job = line.error, None
        if line.group is not None and line.group < len(sources):
            job = jobs[line.group]
            results = [await anext(sources[line.group], None) for _ in range(line.items)]
            code = record.groups[line.group].refused or next(
                filter(None, (error_of(each, to) for each in results)), None
            )
        elif code is None:
            code = UNANSWERED.get(to, JOB_GONE)
        if job is not None and code is None:
            counts.completed += 1
            told = Told(request_id(record.id, line), job.version)
            output.add(outcome_line(record.id, line, dialect.reply(None, [each for each in results if each], told)))
        else:
            error = code or JOB_GONE
            counts.failed += error not in UNANSWERED.values()
            failures.add(outcome_line(record.id, line, None, error))
        await tools.renew_lease()
    return counts


async def outcomes(tools: BatchTools, record: JobRecord | None) -> AsyncIterator[Outcome]:
    """Yield the stored results of a group's job in order; none if it does not exist."""
    if record is None:
        return
    for _ in range(record.dropped):
        yield {"status": "dropped"}
    at = record.dropped
    while page := await tools.jobs.results(record, at, PAGE):
        for result in page:
            yield result
        at += len(page)


def error_of(result: Outcome, to: BatchStatus) -> tuple[str, str] | None:
    """Return the error of a line without a result; None if the line has one."""
    if result is None:
        return UNANSWERED.get(to, JOB_GONE)
    status = result["status"]
    if status == JobStatus.SUCCEEDED:
        return None
    if status == "dropped":
        return DROPPED
    if (to, status) in (("cancelled", "canceled"), ("expired", "expired"), ("cancelled", "expired")):
        return UNANSWERED[to]
    if result["error"] is not None:
        return result["error"]["code"], result["error"]["detail"]
    return JOB_ENDED.get(JobStatus(status), JOB_GONE)


@dataclass
class OutcomeFile:
    """A file that is created with its first line; without lines it is not created."""

    tools: BatchTools
    writer: Writer | None = None
    size: int = 0

    def add(self, line: bytes) -> None:
        """Write one more line."""
        if self.writer is None:
            self.writer = self.tools.storage.create(new_id("file", cell=self.tools.settings.cell))
        self.writer.write(line)
        self.size += len(line)

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


def outcome_line(batch: str, line: PlannedLine, body: Any, error: tuple[str, str] | None = None) -> bytes:
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
