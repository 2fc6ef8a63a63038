"""What owners are charged: estimates that cores correct, in accounts that come to nothing once all is answered."""

import random
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from corelane.domain.dispatch import Ref
from corelane.store.dispatch import Claim, ExchangeRequest, Room
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answer_all, answered, claimed

#: A core that claims, says what it found the work to cost, and then hangs until it is killed.
HANGING_CORE = """
import sys, time
from dataclasses import replace
from corelane.settings import Settings
from tests.corelane.store_bench import LoneCore
from corelane.store.dispatch import ExchangeRequest
core = LoneCore(Settings(redis_url=sys.argv[1], lease_s=1.5), "a/0")
claim = core.claim([sys.argv[2]], linger=False)
found = [(claim.lease, replace(ref, tokens=50_000)) for ref, _ in claim.refs]
core.exchange(ExchangeRequest(linger=True, found=found))
print("found", flush=True)
time.sleep(600)
"""


def tell_found(core: LoneCore, claim: Claim, tokens: int) -> list[Ref]:
    """Tell the store that all refs of a claim cost so many tokens."""
    refs = [replace(ref, tokens=tokens) for ref, _ in claim.refs]
    found = [(claim.lease, ref) for ref in refs]
    core.exchange(ExchangeRequest(linger=True, found=found))
    return refs


def accounts(bench: Bench) -> dict[str, dict[str, str]]:
    """Every account that is not at zero."""
    keys = ("cl:waiting", "cl:held", "cl:owed", "cl:unfed", "cl:jobs")
    return {key: found for key in keys if (found := bench.raw.hgetall(key))}


def test_what_a_core_found_is_charged_once_however_often_it_is_told(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(32, owner="doc")
    bench.submit(64, owner="doc")
    claim = core.exchange(ExchangeRequest(versions=[VERSION], room=Room(1), idle=True)).claim
    assert claim is not None
    assert bench.raw.hgetall("cl:held") == {"a/0": "2048"}
    for _ in range(2):
        tell_found(core, claim, 30_000)
        assert bench.raw.hgetall("cl:held") == {"a/0": "30000"}
        assert bench.raw.hgetall("cl:owed") == {"doc": str(30_000 + 64 * 64)}
        assert bench.raw.zscore("cl:shares:1", "doc") == 30_000
    core.commit(claim.lease, answered(claim))
    answer_all(core)
    assert accounts(bench) == {}


@pytest.mark.parametrize("is_told", [True, False], ids=["told while it runs", "told with its answers"])
@pytest.mark.parametrize("owners", [("heavy", "light"), ("one", "one")], ids=["of two owners", "of one owner"])
def test_job_that_costs_more_than_estimated_is_served_less(
    bench: Bench, owners: tuple[str, str], is_told: bool
) -> None:
    core = bench.core("a/0")
    heavy, light = [bench.submit(32 * 8, owner=owner) for owner in owners]
    order = []
    while (claim := core.exchange(ExchangeRequest(versions=[VERSION], room=Room(1), idle=True)).claim) is not None:
        order += claim.jobs
        outcomes = answered(claim)
        if claim.jobs == [heavy]:
            outcomes = [replace(outcome, ref=replace(outcome.ref, tokens=2048 * 16)) for outcome in outcomes]
            if is_told:
                tell_found(core, claim, 2048 * 16)
        core.commit(claim.lease, outcomes)
    assert order.count(heavy) == order.count(light) == 8
    assert order[:9].count(heavy) == 1
    assert accounts(bench) == {}


def test_charge_found_at_the_end_counts_as_answered(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1, owner="doc")
    claim = claimed(core)
    core.commit(claim.lease, [replace(outcome, ref=replace(outcome.ref, tokens=7000)) for outcome in answered(claim)])
    [rate] = [bench.raw.hgetall(key) for key in bench.raw.keys("cl:rate:*")]
    assert rate == {"doc": "7000"}
    assert accounts(bench) == {}


def test_core_killed_after_it_told_what_it_found_leaves_nothing_behind(bench: Bench, redis_url: str) -> None:
    bench.core("b/0")
    bench.submit(3, owner="doc")
    argv = [sys.executable, "-c", HANGING_CORE, redis_url, VERSION]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as core:
        assert core.stdout is not None
        assert core.stdout.readline() == b"found\n"
        core.send_signal(signal.SIGKILL)
    assert bench.raw.hgetall("cl:owed") == {"doc": "50000"}
    [lease] = bench.raw.zrange("cl:leases", 0, -1)
    bench.raw.zadd("cl:leases", {lease: 1})
    assert bench.upkeep.return_lapsed() == 1
    assert sum(map(int, bench.raw.hgetall("cl:owed").values())) == 3 * (50_000 // 3)
    assert not bench.raw.exists("cl:held")
    answer_all(bench.core("b/0"))
    assert accounts(bench) == {}


def test_charge_corrected_while_the_keeper_takes_a_claim_back_counts_once(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(2, owner="doc")
    claim = claimed(core)
    refs = [(ref, version) for ref, version in claim.refs]
    tell_found(core, claim, 9000)
    # As it was when the keeper, or the core itself, looked before the correction.
    core.hand_back(claim.lease, refs, bench.bell)
    assert accounts(bench) == {"cl:waiting": {VERSION: "128"}, "cl:owed": {"doc": "128"}, "cl:jobs": {VERSION: "1"}}
    assert tell_found(core, claim, 9000)
    assert bench.raw.hgetall("cl:owed") == {"doc": "128"}
    answer_all(core)
    assert accounts(bench) == {}


def test_sums_come_to_nothing_whatever_happens_to_claims(bench: Bench) -> None:
    chance, cores = random.Random(7), [bench.core(f"a/{n}") for n in range(3)]
    held: list[tuple[LoneCore, Claim]] = []
    jobs: list[str] = []

    def step(kind: str) -> None:
        core, claim = held[chance.randrange(len(held))] if held else (cores[0], None)
        if kind == "submit":
            size = chance.choice([1, 40, 100])
            jobs.append(bench.submit(size, owner=chance.choice("abc")))
        elif kind == "claim":
            found = (core := chance.choice(cores)).claim([VERSION], linger=False)
            held.extend([(core, found)] if found else [])
        elif kind == "cancel" and jobs:
            bench.cancel(chance.choice(jobs))
        elif claim is None:
            return
        elif kind == "find":
            tell_found(core, claim, chance.randrange(1, 100_000))
        elif kind == "lose":
            bench.raw.zadd("cl:leases", {claim.lease: 1}, xx=True)
            bench.upkeep.return_lapsed()
        elif kind == "back":
            core.hand_back(claim.lease, claim.refs, bench.bell)
        elif kind == "commit":
            core.commit(claim.lease, with_charges(chance, claim))

    for _ in range(150):
        step(chance.choice(["submit", "claim", "claim", "find", "find", "lose", "back", "commit", "cancel"]))
    for core, claim in held:
        core.commit(claim.lease, with_charges(chance, claim))
    answer_all(cores[0])
    assert accounts(bench) == {}
    assert bench.raw.keys("cl:shares:*") == []


def with_charges(chance: random.Random, claim: Claim) -> list[Any]:
    return [
        replace(outcome, ref=replace(outcome.ref, tokens=chance.randrange(1, 100_000))) for outcome in answered(claim)
    ]


def test_shared_context_is_charged_for_each_question_and_stored_once(bench: Bench) -> None:
    bench.core("a/0")
    passage = "The river was red at dusk. " * 4000
    items = [Question(question=f"Who was {n}?", context_id="p") for n in range(20)]
    job = bench.submit(0, items=items, contexts={"p": passage})
    assert bench.raw.hlen(f"cl:contexts:{{{job}}}") == 1
    assert sum(map(int, bench.raw.hgetall("cl:owed").values())) > 20 * len(passage) / 4
