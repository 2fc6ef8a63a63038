"""Large jobs: fed from their file slice by slice, contexts shared, results dropped once they are had."""

import os
from pathlib import Path

import pytest

from corelane.domain.ids import new_job_id
from corelane.domain.jobs import JobStatus
from corelane.errors import ResultsDropped
from corelane.store.feeding import STRAY_AGE_S, Feeder
from corelane.store.gauges import read_work
from corelane.store.item_files import ItemFiles, encode_line
from corelane.store.jobs.submission import ItemFile
from corelane.store.link.blocking import Link
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, answer_all, answered, claimed
from workers.loops.rounds import feed


def upload(bench: Bench, job: str, items: int, tokens: int = 64) -> ItemFile:
    path = bench.settings.files_root / f"{job}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(encode_line((f"i{n}", "who", f"ada {n // 4}"), tokens) for n in range(items)))
    return ItemFile(path.name, items, tokens * items)


def submit_upload(bench: Bench, items: int) -> tuple[str, Path]:
    job = new_job_id()
    bench.submit(0, job, file=upload(bench, job, items))
    return job, bench.settings.files_root / f"{job}.jsonl"


def feeder_of(bench: Bench, feed_tokens: int = 64 * 1000) -> Feeder:
    return Feeder(bench.settings.model_copy(update={"feed_tokens": feed_tokens}), bench.bell)


def test_feeder_that_was_cut_off_goes_on_with_its_turn_and_no_other_does(bench: Bench) -> None:
    feeder = feeder_of(bench)
    submit_upload(bench, 50)
    assert feeder.take_turn("me")
    assert feeder.has_work("me")
    assert not feeder.has_work("another")
    assert feed(feeder, "another", bool) == 0
    assert feed(feeder, "me", bool) > 0
    assert not bench.raw.exists("cl:feeder", "cl:feeds")


def test_job_is_fed_as_it_is_answered_and_never_more_than_allowed_at_a_time(bench: Bench) -> None:
    core = bench.core("a/0")
    job, path = submit_upload(bench, 5000)
    feeder = feeder_of(bench)
    assert feeder.has_work()
    most = 0
    for _ in range(20):
        while feeder.feed(job):
            pass
        most = max(most, sum(bench.waiting().values()))
        answer_all(core)
    record = bench.get(job)
    assert (record.status, record.succeeded) == (JobStatus.SUCCEEDED, 5000)
    assert 0 < most <= 2 * 64 * 1000
    assert [result["id"] for result in bench.results(job)] == [f"i{n}" for n in range(5000)]
    assert not path.exists()
    assert not feeder.has_work()
    assert not bench.raw.exists(f"cl:in:{{{job}}}", "cl:feeds", "cl:unfed")


def test_waiting_work_counts_what_waits_in_files(bench: Bench) -> None:
    bench.core("a/0")
    submit_upload(bench, 5000)
    work = Link(bench.settings.redis_url).read(read_work)
    assert sum(work.outstanding.values()) == 5000 * 64


def test_what_was_answered_is_gone_from_redis_at_once(bench: Bench) -> None:
    core = bench.core("a/0")
    job, _ = submit_upload(bench, 2000)
    feeder = feeder_of(bench)
    feeder.feed(job)
    before = bench.raw.hlen(f"cl:in:{{{job}}}")
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    assert bench.raw.hlen(f"cl:in:{{{job}}}") == before - len(claim.refs)


def test_feeder_that_died_between_payloads_and_lanes_costs_nothing(bench: Bench) -> None:
    core = bench.core("a/0")
    job, _ = submit_upload(bench, 500)
    bench.raw.hset(f"cl:in:{{{job}}}", "0", "half a payload")
    first, second = feeder_of(bench), feeder_of(bench)
    feed = first._read(job)
    assert feed is not None
    assert second.feed(job)
    waiting = bench.waiting()
    assert first._feed_lines(feed, first._next_lines(feed, 64 * 100)[:100]) is False
    assert bench.waiting() == waiting
    answer_all(core)
    assert bench.get(job).succeeded == 500


def test_results_of_an_ended_job_stay_the_same_when_lines_come_late(bench: Bench) -> None:
    bench.core("a/0")
    job, _ = submit_upload(bench, 500)
    feeder = feeder_of(bench, 64 * 200)
    assert feeder.feed(job)
    feed = feeder._read(job)
    assert feed is not None
    bench.cancel(job)
    before = bench.results(job)
    assert [result["id"] for result in before] == [f"i{n}" if n < feed.fed else None for n in range(500)]
    assert feeder._feed_lines(feed, feeder._next_lines(feed, 64 * 100)) is False
    assert not bench.raw.hexists(f"cl:in:{{{job}}}", str(feed.fed))
    assert bench.results(job) == before


def test_slow_reader_holds_the_feeding_back_until_it_drops(bench: Bench) -> None:
    core = bench.core("a/0")
    job = new_job_id()
    bench.submit(0, job, file=upload(bench, job, 3000), window=1000)
    feeder = feeder_of(bench, 64 * 10_000)
    for done in (1000, 2000, 3000):
        while feeder.feed(job):
            pass
        answer_all(core)
        assert bench.get(job).succeeded == done
        assert not feeder.feed(job)
        bench.drop(job, done)
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert bench.raw.hlen(f"cl:out:{{{job}}}") == 0


def test_canceled_job_is_fed_no_more_and_its_file_stays_for_a_retry_until_the_job_goes(bench: Bench) -> None:
    bench.core("a/0")
    job, path = submit_upload(bench, 5000)
    feeder = feeder_of(bench)
    feeder.feed(job)
    assert int(bench.raw.hget("cl:unfed", "public")) > 0
    bench.cancel(job)
    assert not bench.raw.exists("cl:unfed")
    assert not feeder.feed(job)
    assert path.exists()
    assert bench.get(job).canceled == 5000
    assert [r["status"] for r in bench.results(job, 4990)] == ["canceled"] * 10
    assert 0 < bench.raw.ttl(f"cl:in:{{{job}}}") <= bench.settings.results_ttl_s
    assert feeder.jobs() == []
    bench.with_store(lambda store: store.delete(job))
    assert feeder.jobs() == [job]
    assert not feeder.feed(job)
    assert not path.exists()
    assert not bench.raw.keys(f"*{job}*")


def test_file_whose_items_did_not_all_succeed_goes_when_the_job_is_forgotten(bench: Bench) -> None:
    core = bench.core("a/0")
    job, path = submit_upload(bench, 40)
    feeder = feeder_of(bench)
    feeder.feed(job)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    assert not feeder.feed(job)
    assert path.exists()
    assert not bench.raw.exists(f"cl:in:{{{job}}}")
    bench.raw.delete(f"cl:job:{{{job}}}")
    bench.raw.zadd("cl:keeping", {f"public:{job}:file": 1})
    assert bench.upkeep.forget() == 1
    assert feeder.jobs() == [job]
    assert not feeder.feed(job)
    assert not path.exists()


def test_job_whose_file_is_gone_keeps_its_answers_and_fails_the_rest_with_the_reason(bench: Bench) -> None:
    core = bench.core("a/0")
    job, path = submit_upload(bench, 5000)
    feeder = feeder_of(bench)
    feeder.feed(job)
    fed = int(bench.raw.hget(f"cl:job:{{{job}}}", "fed"))
    answer_all(core)
    path.unlink()
    assert not feeder.feed(job)
    record = bench.get(job)
    assert (record.status, record.succeeded, record.failed) == (JobStatus.SUCCEEDED, fed, 5000 - fed)
    assert record.describe().error is not None
    last = bench.results(job, 4999)[0]
    assert (last["status"], last["error"]["code"]) == ("failed", "items_lost")
    assert bench.raw.xlen("cl:events") == 1


def test_items_are_on_the_disk_under_their_name_before_their_job_is_accepted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()))
    with ItemFiles(bench.settings).writing() as new:
        new.write(b"[]\n")
        _, file = new.finish()
    assert synced == [bench.settings.files_root / file, bench.settings.files_root]


def test_old_files_that_no_job_knows_are_removed(bench: Bench) -> None:
    _, path = submit_upload(bench, 10)
    stray, fresh = (path.with_name(f"{new_job_id()}.jsonl") for _ in range(2))
    old_s = path.stat().st_mtime - 2 * STRAY_AGE_S
    fresh.touch()
    for each in (stray, path):
        each.touch()
        os.utime(each, (old_s, old_s))
    feeder_of(bench).remove_strays()
    assert not stray.exists()
    assert fresh.exists()
    assert path.exists()


def test_dropped_results_are_gone_and_the_rest_is_read_as_before(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(200)
    answer_all(core)
    assert bench.drop(job, 40) == 32
    assert bench.drop(job, 100) == 96
    assert bench.drop(job, 64) == 96
    with pytest.raises(ResultsDropped, match="96"):
        bench.results(job, 95)
    assert [r["index"] for r in bench.results(job, 96)] == list(range(96, 200))
    assert [r["index"] for r in bench.results(job, 111, 3)] == [111, 112, 113]
    assert bench.get(job).describe().results_from == 96
    assert bench.raw.hlen(f"cl:out:{{{job}}}") == 4
    assert bench.drop(job, 10_000) == 200
    assert bench.get(job).succeeded == 200


def test_what_is_kept_of_dropped_results_goes_with_the_job(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(64)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed")[:1])
    assert bench.drop(job, 32) == 32
    assert bench.raw.ttl(f"cl:dropped:{{{job}}}") == -1
    core.commit(claim.lease, answered(claim)[1:])
    assert 0 < bench.raw.ttl(f"cl:dropped:{{{job}}}") <= bench.settings.results_ttl_s


def test_results_that_are_not_there_yet_are_not_dropped(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    core.commit(claim.lease, [answered(claim)[0], answered(claim)[2]])
    assert bench.drop(job, 96) == 32


def test_shared_contexts_are_stored_once_and_reach_the_core_in_full(bench: Bench) -> None:
    core = bench.core("a/0")
    text = "ada " * 500
    items = [Question(id=f"i{n}", question="who", context_id="c") for n in range(40)] + [
        Question(question="who", context="x")
    ]
    job = bench.submit(0, items=items, contexts={"unused": "nothing", "c": text})
    assert bench.raw.memory_usage(f"cl:in:{{{job}}}") < 5000
    claim = claimed(core)
    while len(claim.refs) < 1:
        claim = claimed(core)
    found = [item for claimed_slice in core.fetch(claim) for item in claimed_slice.items]
    assert found[0] == ("i0", "who", text)
    core.commit(claim.lease, answered(claim))
    answer_all(core)
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert not bench.raw.exists(f"cl:contexts:{{{job}}}")


def test_neighbours_with_the_same_context_store_it_once_a_slice(bench: Bench) -> None:
    core = bench.core("a/0")
    text = "ada " * 100
    job = bench.submit(0, items=[Question(question=f"who {n}", context=text) for n in range(20)])
    [payload] = bench.raw.hvals(f"cl:in:{{{job}}}")
    assert payload.count(text) == 1
    [claimed_slice] = core.fetch(claimed(core))
    assert {item[2] for item in claimed_slice.items} == {text}
    assert claimed_slice.version == VERSION
