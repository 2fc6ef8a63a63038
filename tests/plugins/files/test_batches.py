"""Batches carried from step to step on a real Redis, by keepers that may die anywhere."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from corelane.domain.batches import BatchRequest
from corelane.domain.ids import new_id
from corelane.domain.jobs import DEFAULT_TASK, JobStatus
from corelane.domain.request_facts import RequestFacts
from corelane.plugins.files.batches.task import BatchRunner, end, tidy
from corelane.plugins.files.batches.tools import BatchTools, LeaseLost
from corelane.plugins.files.store.batches import BatchStore
from corelane.settings import Settings
from corelane.store.file_storage import open_storage
from corelane.store.link.blocking import Link
from corelane.tasks.results import failed_result
from tests.corelane.store_bench import answer_all, answered, claimed
from tests.plugins.files.batch_bench import BatchBench, line
from tests.tools.fleet import armed


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> BatchBench:
    return BatchBench(settings, raw, bell)


MIXED = b"\xef\xbb\xbf" + b"".join(
    (
        line("a", id="own"),
        b"\r\n",
        line("b")[:-1] + b"\r\n",
        b"{torn\n",
        line("a"),
        line("c", options={"top_k": 3}),
        line("d", model="nobody"),
        b"\xff\xfe\n  \n",
        line("e")[:-1],
    )
)


def test_each_line_has_its_outcome_in_order_and_bad_ones_harm_nobody(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(MIXED, metadata={"run": "7"})
    assert (bench.batch(batch).status, bench.batch(batch).request_counts.total) == ("validating", 0)
    bench.steps()
    going = bench.batch(batch)
    assert (going.status, going.request_counts.model_dump()) == (
        "in_progress",
        {"total": 8, "completed": 0, "failed": 4},
    )
    assert len(going.jobs) == 2
    assert bench.get(going.jobs[0]).metadata["batch_id"] == batch
    bench.answer(core)
    assert bench.batch(batch).request_counts.completed == 4
    bench.steps()
    done = bench.batch(batch)
    assert (done.status, done.metadata) == ("completed", {"run": "7"})
    assert done.request_counts.model_dump() == {"total": 8, "completed": 4, "failed": 4}
    output, errors = bench.lines(done.output_file_id), bench.lines(done.error_file_id)
    assert [(each["line"], each["custom_id"]) for each in output] == [(1, "a"), (3, "b"), (6, "c"), (10, "e")]
    assert [each["response"]["status_code"] for each in output] == [200] * 4
    assert {each["response"]["body"]["index"] for each in output} == {0}
    assert [(each["line"], each["custom_id"], each["error"]["code"]) for each in errors] == [
        (4, None, "invalid_input"),
        (5, "a", "duplicate_custom_id"),
        (7, "d", "unknown_model"),
        (8, None, "invalid_input"),
    ]
    assert None not in (done.in_progress_at, done.finalizing_at, done.completed_at)
    assert bench.left_behind() == set()
    assert not bench.raw.exists("cl:batching", *(f"cl:out:{{{job}}}" for job in done.jobs))


@pytest.mark.parametrize(
    ("content", "code", "kept"),
    [
        (b"", "empty_file", 0),
        (b" \n\r\n\n", "empty_file", 0),
        (b"{}\nnonsense\n", "invalid_input", 2),
        (line("a", model="nobody") + line("b", model="no one"), "unknown_model", 2),
        (b"\n".join([b"x"] * 51), "too_many_lines", 0),
    ],
)
def test_batch_without_a_good_line_fails_and_says_why(bench: BatchBench, content: bytes, code: str, kept: int) -> None:
    bench.settings = bench.settings.model_copy(update={"max_file_lines": 50})
    bench.core("a/0")
    batch = bench.begin(content)
    bench.steps()
    failed = bench.batch(batch)
    assert (failed.status, failed.output_file_id) == ("failed", None)
    assert failed.errors is not None
    assert failed.errors.data[0].code == code
    assert len(bench.lines(failed.error_file_id)) == failed.request_counts.failed == kept
    assert bench.left_behind() == set()
    assert failed.failed_at is not None


def test_batch_whose_input_was_deleted_fails(bench: BatchBench) -> None:
    batch = bench.begin(line("a"))
    open_storage(bench.settings.files_url, bench.settings.files_root).delete(bench.record(batch).input_file)
    bench.steps()
    failed = bench.batch(batch)
    assert failed.errors is not None
    assert (failed.status, failed.errors.data[0].code) == ("failed", "file_not_found")


def test_batch_waits_for_a_model_to_be_announced(bench: BatchBench) -> None:
    batch = bench.begin(line("a"))
    ends = time.monotonic() + 1

    async def rounds(context: BatchTools) -> int:
        return await BatchRunner(context).run(lambda: time.monotonic() > ends)

    bench.in_context(rounds)
    assert bench.batch(batch).status == "validating"
    bench.answer(core := bench.core("a/0"))
    bench.steps()
    bench.answer(core)
    bench.steps()
    assert bench.batch(batch).status == "completed"


def test_canceled_batch_keeps_what_is_answered(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(b"".join(line(f"c{n}") for n in range(100)) + b"{bad\n")
    bench.steps()
    bench.feed()
    claim = claimed(core)
    core.commit(claim.lease, answered(claim)[:1])
    done = bench.batch(batch).request_counts.completed
    assert 0 < done < 100
    bench.in_context(lambda context: context.batches.cancel(batch))
    assert bench.batch(batch).status == "cancelling"
    bench.steps()
    ended = bench.batch(batch)
    assert (ended.status, ended.request_counts.model_dump()) == (
        "cancelled",
        {"total": 101, "completed": done, "failed": 1},
    )
    output, errors = bench.lines(ended.output_file_id), bench.lines(ended.error_file_id)
    assert sorted(each["line"] for each in output + errors) == list(range(1, 102))
    assert [each["error"]["code"] for each in errors] == ["batch_cancelled"] * (100 - done) + ["invalid_input"]
    assert {bench.get(job).status for job in ended.jobs} == {JobStatus.CANCELED}
    bench.in_context(lambda context: context.batches.cancel(batch))
    assert bench.batch(batch) == ended


def test_batch_canceled_before_it_is_read_ends_without_files(bench: BatchBench) -> None:
    batch = bench.begin(line("a"))
    bench.in_context(lambda context: context.batches.cancel(batch))
    bench.steps()
    ended = bench.batch(batch)
    assert (ended.status, ended.output_file_id, ended.error_file_id) == ("cancelled", None, None)


def test_batch_expires_with_what_is_answered(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(b"".join(line(f"c{n}") for n in range(100)), window="60s")
    bench.steps()
    bench.feed()
    claim = claimed(core)
    core.commit(claim.lease, answered(claim)[:1])
    bench.age(60)
    bench.upkeep.tend()
    bench.steps()
    ended = bench.batch(batch)
    output, errors = bench.lines(ended.output_file_id), bench.lines(ended.error_file_id)
    assert ended.status == "expired"
    assert 0 < len(output) == ended.request_counts.completed < 100
    assert {each["error"]["code"] for each in errors} == {"batch_expired"}
    assert len(output) + len(errors) == 100


def test_lines_whose_job_was_meddled_with_have_errors(bench: BatchBench) -> None:
    core = bench.core("a/0")
    lines = [line(f"c{n}") for n in range(96)] + [line("k", options={"top_k": 2}), line("l", options={"top_k": 3})]
    batch = bench.begin(b"".join(lines))
    bench.steps()
    many, gone, canceled = bench.batch(batch).jobs
    bench.cancel(canceled)
    bench.answer(core)
    assert bench.drop(many, 40) == 32
    bench.raw.delete(f"cl:job:{{{gone}}}")
    bench.steps()
    ended = bench.batch(batch)
    codes = [each["error"]["code"] for each in bench.lines(ended.error_file_id)]
    assert codes == ["results_dropped"] * 32 + ["job_gone", "canceled"]
    assert ended.request_counts.model_dump() == {"total": 98, "completed": 64, "failed": 34}


def test_results_are_held_until_the_batch_has_read_them(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(line("a"))
    bench.steps()
    [job] = bench.batch(batch).jobs
    bench.in_context(lambda context: context.batches.hold_results([job], 500))
    assert bench.raw.ttl(f"cl:job:{{{job}}}") == -1
    bench.answer(core)
    for key in (f"cl:job:{{{job}}}", f"cl:out:{{{job}}}"):
        bench.raw.expire(key, 60)
    bench.in_context(lambda context: context.batches.hold_results([job], 500))
    assert bench.raw.ttl(f"cl:out:{{{job}}}") > 400


@pytest.mark.parametrize("point", ["batch.planned", "batch.submitted", "batch.files_written"])
def test_keeper_killed_anywhere_is_followed_by_another_and_each_line_is_there_once(
    bench: BatchBench, point: str
) -> None:
    core = bench.core("a/0")
    content = b"".join(line(f"c{n}", options={"top_k": 1 + n % 2}) for n in range(50)) + b"bad\n"
    batch = bench.begin(content, webhook={"url": "https://example.com/hook"})
    if point == "batch.files_written":
        bench.steps()
        bench.answer(core)
    bench.raw.delete("cl:batcher")
    script = """from corelane.settings import Settings
from corelane.plugins.files.batches.task import run_batches
run_batches(Settings(), '', bool)"""
    killed = subprocess.run(
        [sys.executable, "-c", script], env=armed(bench.settings, point), check=False, stderr=subprocess.PIPE
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    bench.raw.delete("cl:batcher")
    bench.steps()
    bench.answer(core)
    bench.steps()
    done = bench.batch(batch)
    assert (done.status, done.request_counts.model_dump()) == ("completed", {"total": 51, "completed": 50, "failed": 1})
    assert [each["line"] for each in bench.lines(done.output_file_id)] == list(range(1, 51))
    assert {bench.get(job).total for job in done.jobs} == {25}
    assert len(bench.raw.zrange(f"cl:deliveries:{batch}", 0, -1)) == 1
    # The plan and the items of the dead keeper, which nothing names yet, go with the next search for strays.
    assert len(bench.left_behind()) == (3 if point == "batch.planned" else 0)


def test_keeper_that_lost_its_turn_changes_nothing_and_leaves_nothing(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(line("a"))
    bench.steps()
    bench.answer(core)
    [input_file] = open_storage(bench.settings.files_url, bench.settings.files_root).names()
    bench.raw.set("cl:batcher", "another")
    record = bench.record(batch)
    assert bench.in_context(lambda context: end(context, record, "completed"), "late") is False
    assert bench.batch(batch).status == "in_progress"
    assert open_storage(bench.settings.files_url, bench.settings.files_root).names() == [input_file]

    async def stay(context: BatchTools) -> None:
        context.renewed_s -= 60
        await context.renew_lease()

    with pytest.raises(LeaseLost):
        bench.in_context(stay, "late")


def test_lost_plan_fails_the_batch_and_leaves_the_answers_in_its_jobs(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(line("a"))
    bench.steps()
    bench.answer(core)
    for path in (bench.settings.files_root / "kept/plans").glob("*.plan"):
        path.unlink()
    bench.steps()
    failed = bench.batch(batch)
    assert failed.errors is not None
    assert (failed.status, failed.errors.data[0].code) == ("failed", "items_lost")
    assert len(bench.results(failed.jobs[0])) == 1


def test_batch_waits_while_its_storage_fails(bench: BatchBench, tmp_path: Path) -> None:
    core = bench.core("a/0")
    batch = bench.begin(line("a"))
    bench.steps()
    bench.answer(core)
    whole, kept = bench.settings, bench.settings.files_root / "kept"
    (tmp_path / "occupied").write_text("a file where a folder should be")
    bench.settings = whole.model_copy(update={"files_url": f"file://{tmp_path}/occupied/files"})
    ends = time.monotonic() + 1
    bench.in_context(lambda context: BatchRunner(context).run(lambda: time.monotonic() > ends))
    assert bench.batch(batch).status == "finalizing"
    bench.settings = whole
    bench.steps()
    assert bench.batch(batch).status == "completed"
    assert len(list(kept.glob("file_*"))) == 2


def test_files_and_batches_are_forgotten_after_their_time(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(line("a"))
    bench.steps()
    bench.answer(core)
    bench.steps()
    names = bench.raw.zrange("cl:retiring", 0, -1)
    assert len(names) == 3
    link = Link(bench.settings.redis_url)

    def has_work(name: str = "") -> bool:
        return link.read(lambda read: BatchStore(read).has_work(name))

    bench.raw.delete("cl:batcher")
    bench.raw.set("cl:tidied", 1)
    assert not has_work()
    for name in names:
        bench.raw.zadd("cl:retiring", {name: 1})
    assert has_work()
    bench.raw.set("cl:batcher", "me", px=60_000)
    assert has_work("me")
    assert not has_work("another")
    bench.raw.delete("cl:batcher")
    bench.in_context(lambda context: BatchRunner(context).run(bool))
    assert open_storage(bench.settings.files_url, bench.settings.files_root).names() == []
    assert bench.in_context(lambda context: context.batches.get(batch)) is None
    assert bench.raw.keys("cl:file*") + bench.raw.keys("cl:batch*") + bench.raw.keys("cl:retiring") == []


def test_old_files_that_nobody_knows_are_removed(bench: BatchBench) -> None:
    kept = bench.keep(b"x")
    storage = open_storage(bench.settings.files_url, bench.settings.files_root)
    old, fresh, foreign = new_id("file", 1_000_000), new_id("file"), "notes.txt"
    for name in (old, fresh, foreign):
        storage.create(name).close()
    storage.create(f"plans/{new_id('batch', 1_000_000)}.x.plan").close()
    bench.in_context(tidy)
    assert set(storage.names()) == {kept, fresh, foreign}
    assert storage.names("plans") == []


def test_lines_that_failed_may_be_retried_through_their_job_once_the_batch_has_its_results(bench: BatchBench) -> None:
    core = bench.core("a/0")
    batch = bench.begin(b"".join(line(f"c{n}") for n in range(3)))
    bench.steps()
    [job] = bench.batch(batch).jobs
    bench.feed()
    claim = claimed(core)
    [outcome] = answered(claim)
    results = [outcome.results[0], failed_result(DEFAULT_TASK, 1, "c1", "worker_lost", "lost"), outcome.results[2]]
    core.commit(claim.lease, [replace(outcome, results=results)])
    bench.steps()
    assert bench.batch(batch).status == "completed"

    async def unanswered(context: BatchTools) -> list[int]:
        record = await context.jobs.get(job)
        assert record is not None
        assert record.dropped == record.total
        return [index async for part in context.jobs.unanswered(record) for index in part]

    assert bench.in_context(unanswered) == [1]
    assert not bench.raw.exists(f"cl:out:{{{job}}}")
    assert 0 < bench.raw.ttl(f"cl:dropped:{{{job}}}") <= bench.raw.ttl(f"cl:job:{{{job}}}")
    assert (bench.settings.files_root / f"{job}.jsonl").exists()


def test_job_deleted_while_its_batch_reads_it_leaves_nothing(bench: BatchBench) -> None:
    core = bench.core("a/0")
    job = bench.submit(3)
    answer_all(core)
    record = bench.get(job)
    bench.with_store(lambda store: store.delete(job))
    bench.in_context(lambda context: context.jobs.drop_final(job))
    assert bench.with_store(lambda store: store.drop(record, 3)) == 0
    assert bench.raw.keys(f"cl:*{{{job}}}") == []


def test_jobs_of_a_batch_come_from_the_request_that_made_it(bench: BatchBench) -> None:
    bench.core("a/0")
    file, batch = bench.keep(line("a")), new_id("batch")
    origin = RequestFacts("order-1", f"00-{'a' * 32}-{'b' * 16}-01")
    request = BatchRequest(input_file_id=file, endpoint="/v1/answers", completion_window="24h")
    bench.in_context(lambda context: context.batches.begin(batch, "ann", request, None, origin))
    bench.steps()
    [job] = bench.batch(batch).jobs
    assert bench.raw.hmget(f"cl:job:{{{job}}}", "request_id", "traceparent") == [origin.request_id, origin.traceparent]


def test_jobs_held_for_a_batch_keep_nobody_behind_them_from_being_forgotten(bench: BatchBench) -> None:
    core = bench.core("a/0")
    held, gone = bench.submit(1), bench.submit(1)
    answer_all(core)
    bench.raw.zadd("cl:keeping", {f"public:{held}": 1, f"public:{gone}": 2})
    bench.raw.delete(f"cl:job:{{{gone}}}")
    assert [int(bench.raw.execute_command("ZCARD", "cl:keeping")), bench.upkeep.forget()] == [2, 1]
    until_ms = bench.raw.zscore("cl:keeping", f"public:{held}")
    assert until_ms == bench.get(held).kept_until_ms
    assert until_ms / 1000 > time.time() + 60
    assert bench.upkeep.forget() == 0
