"""Each job's end is told once, by whichever keeper asks first, and counted by status."""

from structlog.testing import capture_logs

from corelane.store.upkeep import ENDED_AT_A_TIME, Upkeep
from tests.corelane.store_bench import VERSION, Bench, answered, claimed
from workers.loops.rounds import tell_ended


def told(upkeep: Upkeep) -> list[dict[str, object]]:
    with capture_logs() as lines:
        tell_ended(upkeep)
    return [dict(line) for line in lines]


def test_end_of_a_job_is_logged_once_whichever_keeper_asks(bench: Bench) -> None:
    core, other = bench.core("a/0"), Upkeep(bench.settings, bench.bell)
    job = bench.submit(2, owner="ann")
    assert told(bench.upkeep) == []
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    [line] = told(bench.upkeep)
    record = bench.get(job)
    assert record.finished_ms is not None
    assert line.pop("seconds") == (record.finished_ms - record.created_ms) / 1000
    assert float(str(line.pop("waited_s"))) >= 0
    assert line == {
        "event": "job_ended",
        "log_level": "info",
        "job_id": job,
        "status": "succeeded",
        "owner": "ann",
        "version": VERSION,
        "total": 2,
        "succeeded": 2,
        "failed": 0,
        "canceled": 0,
        "expired": 0,
    }
    core.commit(claim.lease, answered(claim))
    assert told(other) == told(bench.upkeep) == []


def test_canceled_and_deleted_jobs_are_told_too_and_all_are_counted(bench: Bench) -> None:
    bench.core("a/0")
    canceled, deleted = bench.submit(1), bench.submit(1)
    bench.cancel(canceled)
    bench.with_store(lambda store: store.delete(deleted))
    first, second = told(bench.upkeep)
    assert (first["job_id"], first["status"], first["canceled"]) == (canceled, "canceled", 1)
    assert second == {"event": "job_ended", "log_level": "info", "job_id": deleted, "status": "canceled"}
    assert bench.raw.hget("cl:metrics", "corelane_jobs_ended_total|canceled") == "2"


def test_more_ends_than_are_told_at_a_time_are_all_told(bench: Bench) -> None:
    ends = [f"job_{number}" for number in range(2 * ENDED_AT_A_TIME + 1)]
    pipeline = bench.raw.pipeline()
    for job in ends:
        pipeline.xadd("cl:events", {"job": job, "status": "failed"})
    pipeline.execute()
    assert [line["job_id"] for line in told(bench.upkeep)] == ends
    assert told(bench.upkeep) == []
