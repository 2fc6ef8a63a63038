"""What is forged in Redis does no more than fail: lanes go on, sweeps go on, only the items concerned are lost."""

import orjson
import pytest

from corelane.engine.null import NullRunner
from corelane.store.dispatch import ExchangeRequest, Room
from tests.corelane.store_bench import VERSION, Bench, answer_all, claimed
from workers.core.in_flight import InFlight

LANE, LINE = f"cl:lane:{VERSION}:1:public", f"cl:returned:{VERSION}"

NO_REFS = [
    "",
    "garbage",
    "a:b:c:d:e:f:g:h",
    "job_x:public:1:0:0:1:64",
    "job_x:public:1:0:0:1:64:1:9",
    "job_x:public:7:0:0:1:64:1",
    "job_x:public:1:0:0:99999999:64:1",
    "job_x:public:1:0:0:1:999999999999999999999999:1",
    "job_x:public:1:5:0:1:64:1",
    "job_x:public:1:-1:0:1:64:1",
    "\x00" * 1000,
]

PAYLOADS = [
    b"",
    b"no JSON",
    b"{}",
    b"[]",
    b"[1, 2, 3]",
    b'[["i0", "Who?"]]',
    b'[["i0", 7, "Ada."]]',
    b'[["i0", "Who?", null]]',
    b'[["i0", "Who?", true]]',
    b'[[["list"], "Who?", "Ada."]]',
    b'[["i0", "Who?", -1]]',
    b'[["i0", "Who?", 99]]',
    b"[" * 2000,
]


def test_texts_in_a_lane_that_are_no_refs_are_dropped_and_the_rest_is_answered(bench: Bench) -> None:
    core = bench.core("a/0")
    small, large = bench.submit(1), bench.submit(128)
    for key in (LANE, LINE, f"cl:refs:{{{large}}}"):
        bench.raw.lpush(key, *NO_REFS)
        bench.raw.rpush(key, *NO_REFS)
    admission = bench.with_store(lambda store: store.admit("default"))
    assert admission.version == VERSION
    answer_all(core)
    assert {str(bench.get(job).status) for job in (small, large)} == {"succeeded"}
    bench.upkeep.prune()
    answer_all(core)
    assert not bench.raw.exists(LANE, LINE, f"cl:refs:{{{large}}}")
    assert bench.waiting() == {}


def test_laden_core_passes_over_forged_refs_too(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    bench.raw.lpush(LANE, *NO_REFS)
    room = Room(4096)
    claim = core.exchange(ExchangeRequest(versions=[VERSION], room=room, laden=True)).claim
    assert claim is not None
    assert [ref.job for ref, _ in claim.refs] == [job]


def test_canceled_job_whose_refs_were_forged_still_ends(bench: Bench) -> None:
    bench.core("a/0")
    job = bench.submit(128)
    bench.raw.delete(f"cl:refs:{{{job}}}")
    bench.raw.rpush(f"cl:refs:{{{job}}}", *NO_REFS)
    assert bench.cancel(job)
    assert bench.get(job).status == "canceled"


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_payload_that_cannot_be_read_fails_its_items_alone(bench: Bench, payload: bytes) -> None:
    core = bench.core("a/0")
    bad, good = bench.submit(1), bench.submit(1)
    bench.raw.hset(f"cl:in:{{{bad}}}", "0", payload)
    claim = claimed(core)
    slices = core.fetch(claim)
    assert [claimed_slice.ref.job for claimed_slice in slices] == [good]
    in_flight = InFlight({VERSION: NullRunner(VERSION)})
    in_flight.add(claim, [])
    core.commit(claim.lease, in_flight.done[claim.lease])
    assert bench.get(bad).status == "failed"
    [result] = bench.results(bad)
    assert "lost from the store" in result["error"]["detail"]


def test_options_that_cannot_be_read_fail_the_job(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    bench.raw.hset(f"cl:job:{{{job}}}", "options", '{"top_k": "many"}')
    assert core.fetch(claimed(core)) == []


def test_sweep_goes_on_past_a_forged_claim_and_a_forged_payload(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    claim = claimed(core)
    bench.raw.hset(f"cl:claim:{claim.lease}", "forged", "a:b")
    bench.raw.hset(f"cl:claim:{claim.lease}", "forged too", b"\xff\xfe")
    bench.raw.hset(f"cl:in:{{{job}}}", "0", b"no JSON")
    bench.raw.zadd("cl:leases", {claim.lease: 1, "a/9#7": 1})
    bench.raw.hset("cl:claim:a/9#7", "x", orjson.dumps({"a": 1}))
    assert bench.upkeep.return_lapsed() == 1
    assert bench.upkeep.return_lapsed() == 0
    assert bench.raw.zcard("cl:leases") == 0
