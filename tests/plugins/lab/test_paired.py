import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from corelane.plugins.lab.paired import MARK, ORDER, SENDER, BothSides, both, run_of, whole_blocks
from corelane.plugins.lab.schema import Request, ResultCheck
from corelane.plugins.lab.senders import Manner, Reply, Target, make_sender
from corelane.plugins.lab.workload import BenchItem
from tests.plugins.lab.test_figures import measured, request


def marked(slot: int, number: int = 0, **fields: Any) -> Request:
    side = ORDER[slot % len(ORDER)]
    return request(number, float(slot), 0.1, job=f"{side}{slot} job_{number}", **fields)


def test_first_and_last_block_and_those_with_an_empty_slot_are_left_out() -> None:
    slots = [each for each in range(4, 24) if each != 13]
    found = whole_blocks([marked(slot, number) for slot in slots for number in range(2)], most=10)
    # Blocks 1 and 5 may be cut off, block 3 misses a slot.
    assert [(block, side, len(requests)) for block, side, requests in found] == [
        (block, side, 2) for block in (0, 1) for side in "ABBA"
    ]
    assert found[0][2][0].intended_s == 8.0
    assert found[0][2][0].job == "job_0"
    assert found[-1][2][0].intended_s == 19.0


def test_no_more_blocks_than_asked_for_and_only_measured_requests() -> None:
    requests = [marked(slot) for slot in range(40)] + [marked(8, 1, phase="warmup")]
    found = whole_blocks(requests, most=3)
    assert len(found) == 12
    assert {len(each) for _, _, each in found} == {1}


def test_run_of_a_slot_counts_from_its_first_request_to_its_last_answer() -> None:
    requests = [marked(8), marked(8, 1, lost=1, wrong=2)]
    results = ResultCheck(checked=4, differ_from_idle=2)
    run = run_of(replace(measured(requests), results=results), requests, 7)
    assert run.block == 7
    assert run.measured_s == pytest.approx(0.1)
    assert run.items_per_s == pytest.approx(40)
    assert run.results == ResultCheck(checked=4, lost=1, differ_from_idle=2)
    assert run.timeline == []


@dataclass
class Asked:
    """A sender that results with its target's address at once."""

    target: Target
    manner: Manner

    async def open(self, connections: int) -> None:
        pass

    async def close(self) -> None:
        pass

    async def send(self, index: int, items: Sequence[BenchItem]) -> Reply:
        return Reply("ok", job=f"{self.target.url} {self.target.model} {self.target.options}")


def test_each_request_goes_to_the_side_whose_slot_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.lab.paired.CORELANE_SENDER", f"{__name__}:Asked")
    first, other = Target("http://a", None, "one", {"no_answer": True}), Target("http://b", "key", "two")
    sender = make_sender(SENDER, both(first, other, 2), Manner())
    assert isinstance(sender, BothSides)

    async def ask() -> list[str]:
        await sender.open(1)
        jobs = [(await sender.send(number, [])).job or "" for number in range(10)]
        await sender.close()
        return jobs

    jobs = asyncio.run(ask())
    assert (
        jobs[::2]
        == jobs[1::2]
        == [
            "A0 http://a one {'no_answer': True}",
            "B1 http://b two {}",
            "B2 http://b two {}",
            "A3 http://a one {'no_answer': True}",
            "A4 http://a one {'no_answer': True}",
        ]
    )
    assert all(MARK.fullmatch(job) for job in jobs)
