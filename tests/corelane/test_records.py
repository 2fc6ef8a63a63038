"""A job as it is sent is the wire's model of it, field for field."""

import orjson
import pytest

from corelane.domain.jobs import Job, JobStatus, Priority
from corelane.domain.usage import Used
from corelane.store.jobs.records import JobRecord
from corelane.tasks.question_answering.options import AnswerOptions

QUEUED = JobRecord("job_a", JobStatus.QUEUED, "m@1", 1, 1_700_000_000_123)

FINAL = JobRecord(
    "job_b",
    JobStatus.FAILED,
    "m@1",
    3,
    1_700_000_000_000,
    started_ms=1_700_000_000_001,
    finished_ms=1_700_000_000_999,
    succeeded=1,
    failed=1,
    canceled=1,
    options=AnswerOptions(top_k=3, no_answer_threshold=0.25, offsets=("utf16", "bytes")),
    metadata={"ß": "\u2028"},
    priority=Priority.LOW,
    expires_ms=1_700_000_100_000,
    dropped=1,
    error={"code": "input_failed", "detail": "it broke"},
    name="mine",
    retry_of="job_a",
    kept_until_ms=1_700_086_400_000,
    input_url="https://example.org/in?signature=1",
    input={"state": "read", "bytes": 5, "items": 3},
    output_url="s3://bucket/out",
    output={"state": "failed", "attempts": 2, "error": "no"},
    stored_usage=Used(2, 600, 1_250_000).encode(),
)


@pytest.mark.parametrize("record", [QUEUED, FINAL], ids=["queued", "final"])
@pytest.mark.parametrize("usage", [True, False])
def test_job_is_sent_as_the_model_would_write_it(record: JobRecord, usage: bool) -> None:
    sent = orjson.loads(orjson.dumps(record.shown(usage=usage)))
    written = Job.model_validate(sent).model_dump(mode="json")
    assert list(sent) == list(written)
    assert sent == written
    assert record.describe(usage=usage).model_dump(mode="json") == written
