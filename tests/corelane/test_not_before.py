"""Jobs that wait for their time: outside of the lanes, counted, never early, and never lost."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.store.dispatch import Claim
from corelane.store.jobs.submission import ItemFile
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all, answered
from tests.corelane.test_accounts import accounts

DAY_S = 24 * 3600
KINDS = ("submit", "pass", "keep", "claim", "commit", "lose", "cancel")


def later(seconds: int = DAY_S) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def let_in(bench: Bench, after_s: float) -> None:
    bench.age(after_s)
    bench.core("a/0")
    bench.upkeep.let_in()


@pytest.mark.parametrize("is_closed", [True, False], ids=["unloaded", "beside it"])
def test_job_waits_outside_of_the_lanes_and_asks_what_its_alias_means_then(bench: Bench, is_closed: bool) -> None:
    core = bench.core("a/0")
    bench.settings = bench.settings.model_copy(update={"max_items": 20_000})
    announce(bench.settings, "a/0", "tiny@2")
    announce(bench.settings, "a/0", "other@1", summary={"task": "feature-extraction"})
    fixed = bench.submit(20_000, not_before=later())
    job = bench.submit(3, owner="ann", not_before=later())
    lines = bench.submit(0, file=ItemFile("later.jsonl", 64, 4096), not_before=later())
    admission = bench.with_store(lambda store: store.admit(VERSION, owner="ann"))
    assert (admission.outstanding, admission.own) == (20_003 * 64, 3 * 64)
    bench.raw.hset(f"cl:job:{{{job}}}", "asked", "default")
    bench.raw.sadd("cl:pinned", "default")
    bench.raw.hset("cl:aliases", "default", "other@1 1 tiny@2 1")
    if is_closed:
        ask = {"version": VERSION, "before": "", "after": "none", "closes": True, "force": True, "mark": ["model", "-"]}
        bench.upkeep._link.run("set_placement", **ask)
        assert bench.raw.hgetall("cl:jobs") == {VERSION: "2", "tiny@2": "1"}
    let_in(bench, DAY_S - 10)
    assert (bench.waiting(), answer_all(core)) == ({}, [])
    assert not bench.raw.exists("cl:shares:1", "cl:bell:a/0", "cl:feeds")
    let_in(bench, 20)
    assert (bench.get(job).version, bench.get(fixed).version) == ("tiny@2", VERSION)
    assert (bench.raw.zrange("cl:feeds", 0, -1), bench.raw.get("cl:bell:a/0")) == ([lines], "r")
    assert set(answer_all(core)) == {fixed}
    claim = core.claim(["tiny@2"], linger=False)
    assert claim is not None
    core.commit(claim.lease, answered(claim))
    assert {bench.get(each).status for each in (job, fixed)} == {"succeeded"}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 90)), max_size=40))
def test_nothing_begins_early_and_nothing_is_lost_whatever_dies(bench: Bench, steps: list[tuple[str, int]]) -> None:
    bench.raw.flushall()
    core, passed, due, held = bench.core("a/0"), 0, dict[str, int](), list[Claim]()
    for kind, n in steps:
        if kind == "submit":
            due[bench.submit(n, expires_in_s=90 * n, not_before=later(60 * n))] = passed + 60 * n
        elif kind == "pass":
            bench.age(60 * n)
            passed += 60 * n
        elif kind == "keep":
            bench.upkeep.tend()
            let_in(bench, 0)
        elif kind == "claim" and (claim := core.claim([VERSION], linger=False)):
            assert all(due[job] <= passed for job in claim.jobs)
            held.append(claim)
        elif kind == "commit" and held:
            core.commit(held[-1].lease, answered(held.pop()))
        elif kind == "cancel" and due:
            bench.cancel(list(due)[n % len(due)])
        elif kind == "lose" and held:
            bench.raw.zadd("cl:leases", {held.pop().lease: 1}, xx=True)
            bench.upkeep.return_lapsed()
    let_in(bench, DAY_S)
    bench.upkeep.return_lapsed()
    answer_all(core)
    assert all(bench.get(job).status.is_final for job in due)
    assert accounts(bench) == {}
    assert not bench.raw.exists("cl:later", "cl:deferred", "cl:feeds", "cl:expiring", "cl:open:1", "cl:shares:1")
