"""What a core cannot write fails alone: its neighbours in the commit are stored, whoever made it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from corelane.domain.dispatch import MOST_REF_TOKENS
from corelane.store.dispatch import ExchangeRequest
from corelane.tasks.registry import TASKS
from tests.corelane.store_bench import Bench, LoneCore, answered, claimed


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


#: What orjson does not write.
UNWRITABLE = {"huge": 10**40, "surrogate": "\ud800", "object": object(), "deep": nested(300), "bytes": b"a"}


@pytest.fixture
def core(bench: Bench) -> Iterator[LoneCore]:
    with closing(bench.core("test/0")) as core:
        yield core


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", UNWRITABLE)
def test_result_that_cannot_be_written_fails_alone_in_its_commit(
    bench: Bench, core: LoneCore, task: str, kind: str
) -> None:
    jobs = [bench.submit(3), bench.submit(1)]
    claim = claimed(core)
    outcomes = [replace(each, task=task) for each in answered(claim)]
    results = next(outcome.results for outcome in outcomes if outcome.ref.job == jobs[0])
    for name in TASKS[task].nothing:
        results[1][name] = UNWRITABLE[kind]
    assert core.commit(claim.lease, outcomes) == 0
    found = bench.results(jobs[0])
    assert [result["status"] for result in found] == ["succeeded", "failed", "succeeded"]
    assert (found[1]["id"], found[1]["error"]["code"]) == ("i1", "run_failed")
    assert "cannot be stored as JSON" in found[1]["error"]["detail"]
    assert str(bench.get(jobs[1]).status) == "succeeded"


def test_figures_that_redis_cannot_take_do_not_stop_a_commit(bench: Bench, core: LoneCore) -> None:
    jobs = [bench.submit(1), bench.submit(1)]
    claim = claimed(core)
    outcomes = [replace(each, ref=replace(each.ref, tokens=10**18)) for each in answered(claim)]
    job, other = (outcome.ref.job for outcome in outcomes)
    spent: dict[str, Any] = {job: [10**30, -5], other: ["a", float("nan")]}
    assert core.exchange(ExchangeRequest(commits={claim.lease: outcomes}, spent=spent)).refused == {claim.lease: 0}
    assert {str(bench.get(each).status) for each in jobs} == {"succeeded"}
    assert bench.waiting() == {}


def test_charge_beyond_what_redis_counts_is_bounded(bench: Bench, core: LoneCore) -> None:
    bench.submit(1)
    claim = claimed(core)
    ref = replace(claim.refs[0][0], tokens=10**18)
    core.exchange(ExchangeRequest(found=[(claim.lease, ref)]))
    assert bench.waiting() == {"test/0": MOST_REF_TOKENS}
    assert core.commit(claim.lease, [replace(each, ref=ref) for each in answered(claim)]) == 0
    assert bench.waiting() == {}
