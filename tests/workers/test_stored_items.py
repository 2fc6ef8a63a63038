"""Large jobs and batches whose files are all in S3: API and keeper have no folder in common."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from corelane.domain.ids import new_id
from corelane.domain.request_facts import NO_REQUEST
from corelane.plugins.files.batches.task import tidy
from corelane.settings import Settings
from corelane.store.feeding import Feeder
from corelane.store.file_storage import open_storage
from corelane.store.fleet import Fleet
from corelane.store.item_files import ItemFiles
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.submitting.ndjson import NdjsonBody, submit_file
from corelane.submitting.retries import retry
from corelane.submitting.submitter import Submitter
from tests.corelane.store_bench import VERSION, answer_all, answered, claimed
from tests.plugins.files.batch_bench import BatchBench, line
from tests.tools.s3 import S3Server


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str, s3: str) -> BatchBench:
    return BatchBench(settings.model_copy(update={"files_url": f"{s3}/corelane", "lease_s": 3600.0}), raw, bell)


@pytest.fixture
def bucket(s3: str, s3_server: S3Server) -> Path:
    return s3_server.folder / s3.removeprefix("s3://") / "corelane"


def on(bench: BatchBench, folder: Path) -> Settings:
    """Return the settings of another host: nothing in common but Redis and S3."""
    return bench.settings.model_copy(update={"data_dir": folder})


def send(bench: BatchBench, settings: Settings, count: int) -> str:
    """Take in a job sent as lines, as the API does."""

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps({"model": VERSION, "results_window": 5000}).encode() + b"\n"
        for number in range(count):
            yield json.dumps({"id": f"i{number}", "question": "who", "context": "ada"}).encode() + b"\n"

    async def run(link: AsyncLink) -> str:
        store = JobStore(link, settings, bench.bell)
        submitter = Submitter(store, Fleet(link), settings)
        lines = NdjsonBody(settings, body(), submitter.tasks)
        await lines.read_head()
        job, file = await lines.keep()
        admission = replace(await store.admit(VERSION), version=VERSION)
        submission = Submission(lines.head, file=file, id=job)
        return (await submit_file(submitter, settings, submission, admission)).record.id

    return bench.with_link(run)


def test_job_sent_as_lines_to_one_host_is_fed_by_another(bench: BatchBench, bucket: Path, tmp_path: Path) -> None:
    core = bench.core("a/0")
    job = send(bench, on(bench, tmp_path / "api"), 100)
    assert [path.name for path in (bucket / "items").glob("*")] == [f"{job}.jsonl"]
    feeder = Feeder(on(bench, tmp_path / "keeper"), bench.bell)
    assert feeder.has_work()
    assert feeder.feed(job)
    answer_all(core)
    assert [result["id"] for result in bench.results(job)] == [f"i{number}" for number in range(100)]
    assert not feeder.feed(job)
    assert not list((bucket / "items").glob("*"))
    assert not feeder.has_work()
    assert not (tmp_path / "api").exists()
    assert not (tmp_path / "keeper").exists()


def test_item_that_failed_is_shown_and_retried_from_the_bucket(bench: BatchBench, tmp_path: Path) -> None:
    core, api = bench.core("a/0"), on(bench, tmp_path / "api")
    job = send(bench, api, 40)
    feeder = Feeder(api, bench.bell)
    feeder.feed(job)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    feeder.feed(job)
    record = bench.get(job)

    async def run(link: AsyncLink) -> str:
        store = JobStore(link, api, bench.bell)
        item = await store.item(record, 7)
        assert item is not None
        assert item.model_dump()["question"] == "who"
        assert item.id == "i7"
        return (await retry(Submitter(store, Fleet(link), api), store, api, record, NO_REQUEST)).record.id

    second = bench.with_link(run)
    assert (record.results_window, bench.get(second).results_window) == (5000, 5000)
    feeder.feed(second)
    answer_all(core)
    assert bench.get(second).succeeded == 40
    assert feeder.jobs() == [second]


def test_feeding_waits_for_storage_that_is_away_and_keeps_the_job(bench: BatchBench, s3_server: S3Server) -> None:
    core = bench.core("a/0")
    job = send(bench, bench.settings, 10)
    feeder = Feeder(bench.settings, bench.bell)
    s3_server.kill()
    try:
        assert not feeder.feed(job)
        assert bench.get(job).status == "queued"
    finally:
        s3_server.start()
    feeder = Feeder(bench.settings, bench.bell)
    assert feeder.feed(job)
    answer_all(core)
    assert bench.get(job).succeeded == 10


def test_batch_is_carried_from_host_to_host(bench: BatchBench, bucket: Path, tmp_path: Path) -> None:
    batch = bench.begin(b"".join(line(f"q{n}", model=VERSION) for n in range(50)) + b"bad\n")
    for step in range(20):
        keeper = BatchBench(on(bench, tmp_path / f"keeper-{step}"), bench.raw, bench.bell)
        core = keeper.core("a/0")
        keeper.steps()
        keeper.answer(core)
        if bench.record(batch).is_final:
            break
    found = bench.batch(batch)
    assert (found.status, found.request_counts.completed, found.request_counts.failed) == ("completed", 50, 1)
    assert [each["custom_id"] for each in bench.lines(found.output_file_id)] == [f"q{n}" for n in range(50)]
    assert not [path for name in ("items", "plans") for path in (bucket / name).glob("*")]
    assert not list(tmp_path.glob("keeper-*"))


def test_items_and_plans_that_nobody_knows_go_after_a_day(bench: BatchBench, bucket: Path) -> None:
    bench.core("a/0")
    job, known = new_id("job", 1_000_000), send(bench, bench.settings, 3)
    strays = [f"items/{job}.jsonl", f"items/{job}.jsonl.0", f"plans/{new_id('batch', 1_000_000)}.x.plan"]
    storage = open_storage(bench.settings.files_url, bench.settings.files_root)
    for name in (*strays, f"items/{new_id('job')}.jsonl"):
        storage.create(name).close()
    bench.in_context(tidy)
    assert storage.names("plans") == []
    assert len(storage.names("items")) == 2
    assert f"{known}.jsonl" in storage.names("items")


def test_deleted_job_leaves_no_part_of_its_items(bench: BatchBench) -> None:
    storage, job = open_storage(bench.settings.files_url, bench.settings.files_root), new_id("job")
    for part in range(3):
        storage.create(f"items/{job}.jsonl.{part}").close()
    ItemFiles(bench.settings).delete(job)
    assert storage.names("items") == []
