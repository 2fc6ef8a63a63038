"""Fair shares between owners, charged by tokens."""

import time
from collections import Counter
from dataclasses import replace
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.domain.api_keys import Scope
from corelane.domain.dispatch import BESIDE_TOKENS, Ref
from corelane.domain.jobs import Priority
from corelane.store.api_keys import ApiKeyStore
from corelane.store.dispatch import ExchangeRequest, Room
from corelane.store.jobs.submission import ItemFile
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answer_all, answered, claimed


def test_newcomer_goes_before_a_flood(bench: Bench) -> None:
    core = bench.core("a/0")
    flood = bench.submit(3200, owner="flood")
    claim = claimed(core)
    lone = bench.submit(1, owner="other")
    core.commit(claim.lease, answered(claim))
    assert claimed(core).refs[0][0].job == lone
    assert bench.get(flood).status == "running"


def test_owner_who_was_away_gets_no_more_than_its_share(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3200, owner="always")
    for _ in range(10):
        claim = claimed(core)
        core.commit(claim.lease, answered(claim))
    bench.submit(3200, owner="back")
    served = {"always": 0, "back": 0}
    for _ in range(6):
        claim = claimed(core)
        for ref, _ in claim.refs:
            served[ref.owner] += ref.tokens
        core.commit(claim.lease, answered(claim))
    assert 0.7 < served["always"] / served["back"] < 1.4


def test_nothing_is_left_of_shares_and_accounts_once_all_is_answered(bench: Bench) -> None:
    core, other = bench.core("a/0"), bench.core("b/0")
    for owner in ("one", "two", "three"):
        bench.submit(200, owner=owner)
        bench.submit(3, owner=owner)
        bench.submit(90, owner=owner, priority=Priority.LOW)
    answer_all(core)
    answer_all(other)
    assert bench.waiting() == {}
    assert not bench.raw.exists("cl:owed", "cl:open:1", "cl:leases")
    assert bench.raw.keys("cl:shares:*") + bench.raw.keys("cl:lane*") + bench.raw.keys("cl:line*") == []
    assert bench.raw.keys("cl:refs:*") == []


def test_owner_whose_work_a_core_cannot_do_is_passed_over(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1, owner="first", version="other@1")
    mine = bench.submit(1, owner="second")
    assert [ref.job for ref, _ in claimed(core).refs] == [mine]
    others = bench.core("b/0").claim(["other@1"], linger=False)
    assert others is not None
    assert [ref.owner for ref, _ in others.refs] == ["first"]


def test_core_without_room_claims_for_newcomers_alone(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3200, owner="flood")
    claimed(core)
    room = Room(0, bench.settings.claim_tokens, ["flood:1"])

    def claimed_now(room: Room) -> list[str]:
        claim = core.exchange(ExchangeRequest(versions=[VERSION], room=room, linger=True)).claim
        return [] if claim is None else [ref.job for ref, _ in claim.refs]

    assert claimed_now(room) == []
    assert bench.raw.get("cl:bell:a/0") == "r"
    lone, urgent = bench.submit(1, owner="other"), bench.submit(1, owner="flood", priority=Priority.HIGH)
    assert claimed_now(room) == [urgent, lone]
    assert claimed_now(Room(0, 0, room.met)) == []


def test_newcomer_with_a_flood_of_its_own_gets_one_slice_beyond_the_room(bench: Bench) -> None:
    core = bench.core("a/0")
    second = bench.submit(3200, owner="second")
    exchanged = core.exchange(ExchangeRequest(versions=[VERSION], room=Room(0, 1), linger=True))
    assert exchanged.claim is not None
    assert [(ref.job, ref.first) for ref, _ in exchanged.claim.refs] == [(second, 0)]


def served_jobs(core: LoneCore, claims: int) -> Counter[str]:
    """Tokens by job over so many claims, each answered before the next."""
    served: Counter[str] = Counter()
    for _ in range(claims):
        claim = claimed(core)
        for ref, _ in claim.refs:
            served[ref.job] += ref.tokens
        core.commit(claim.lease, answered(claim))
    return served


def test_question_goes_before_its_owners_own_batch(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3200)
    claim = claimed(core)
    lone = bench.submit(1)
    core.commit(claim.lease, answered(claim))
    assert claimed(core).refs[0][0].job == lone


def test_core_full_of_an_owners_batch_claims_its_lone_questions(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3200)
    claimed(core)
    met = ["public:1"]

    def claimed_now(met: list[str]) -> list[str]:
        room = Room(0, bench.settings.claim_tokens, met)
        claim = core.exchange(ExchangeRequest(versions=[VERSION], room=room, linger=True)).claim
        return [] if claim is None else [ref.job for ref, _ in claim.refs]

    assert claimed_now(met) == []
    few = [bench.submit(1) for _ in range(3)]
    assert claimed_now(met) == few
    more = [bench.submit(1) for _ in range(40)]
    assert claimed_now([*met, "public:1:small"]) == []
    assert claimed_now(met) == more[: BESIDE_TOKENS // 64]


def test_jobs_of_one_owner_share_by_tokens(bench: Bench) -> None:
    core = bench.core("a/0")
    first = bench.submit(9600)
    served_jobs(core, 5)
    long_items = [Question(question="who", context="ada " * 4000) for _ in range(40)]
    second = bench.submit(40, items=long_items)
    served = served_jobs(core, 12)
    assert 0.7 < served[first] / served[second] < 1.4


def test_endless_questions_leave_their_owners_batch_a_ninth(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"claim_tokens": 256})
    core = bench.core("a/0")
    batch = bench.submit(3200)
    served: Counter[str] = Counter()
    for _ in range(100):
        for _ in range(4):
            bench.submit(1)
        served += served_jobs(core, 1)
    small = sum(tokens for job, tokens in served.items() if job != batch)
    assert 4 < small / served[batch] < 12


def test_job_that_is_fed_takes_part_in_its_owners_shares(bench: Bench) -> None:
    core = bench.core("a/0")
    other = bench.submit(3200)
    fed = bench.submit(0, file=ItemFile("fed.jsonl", 64, 64 * 64))
    refs = [Ref(fed, "public", 1, first, first, 32, 32 * 64).encode() for first in (0, 32)]
    fed_so_far = {"fed": 0, "fed_after": 64, "bytes_after": 1, "tokens_after": 64 * 64}
    bench.upkeep._link.run("feed", *refs, job=fed, envelope=bench.bell, **fed_so_far)
    assert [ref.job for ref, _ in claimed(core).refs][:4] == [other, fed, other, fed]


def test_canceled_batch_frees_the_tokens_that_wait_at_once(bench: Bench) -> None:
    core = bench.core("a/0")
    batch = bench.submit(3200)
    claim = claimed(core)
    bench.cancel(batch)
    assert bench.waiting() == {"a/0": sum(ref.tokens for ref, _ in claim.refs)}
    assert not bench.raw.exists("cl:shares:1", f"cl:refs:{{{batch}}}")
    core.commit(claim.lease, answered(claim))
    assert not bench.raw.exists("cl:owed")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 9)), min_size=2, max_size=4),
    st.lists(st.floats(0.1, 3), min_size=30, max_size=30),
)
def test_owners_are_served_by_their_shares_within_one_slice(
    bench: Bench, owners: list[tuple[float, int]], found: list[float]
) -> None:
    bench.raw.flushall()
    core, most, served, keys = bench.core("a/0"), Counter[str](), Counter[str](), ApiKeyStore(bench.upkeep._link)
    shares = {f"o{n}": share for n, (share, _) in enumerate(owners)}
    for (owner, share), (_, length) in zip(shares.items(), owners, strict=True):
        keys.create("-", [Scope.SUBMIT], owner=owner, share=share)
        bench.submit(0, owner=owner, items=[Question(question="who", context="ada " * 30 * length)] * 2000)
    for more in found:
        claim = core.exchange(ExchangeRequest(versions=[VERSION], room=Room(1), idle=True)).claim
        assert claim is not None
        [outcome] = answered(claim)
        ref = replace(outcome.ref, tokens=int(outcome.ref.tokens * more))
        core.commit(claim.lease, [replace(outcome, ref=ref)])
        served[ref.owner] += ref.tokens
        most[ref.owner] = max(most[ref.owner], ref.tokens)
    levels = [served[owner] / share for owner, share in shares.items()]  # each begins one below the last: `join_shares`
    assert max(levels) - min(levels) <= max(most[owner] / share for owner, share in shares.items()) + len(owners) - 1


def test_newest_usable_key_tells_the_share_and_a_change_owes_nothing(bench: Bench) -> None:
    core, make = bench.core("a/0"), partial(ApiKeyStore(bench.upkeep._link).create, "-", [Scope.SUBMIT], "ann")
    bench.submit(6400, owner="ann")
    bench.submit(640, owner="beside")

    def shares() -> set[float]:
        return set(claimed(core).shares.values()) - {1}

    make()
    assert not bench.raw.exists("cl:owner_shares")
    make(share=0.1)
    assert shares() == {0.1}
    assert bench.raw.zscore("cl:shares:1", "ann") > 10_000
    much, _ = make(share=100)
    assert bench.raw.zscore("cl:shares:1", "ann") == bench.raw.zscore("cl:shares:1", "beside") - 1
    make(share=7, expires_ms=int(time.time() * 1000 + 100))
    assert shares() == {7}
    time.sleep(0.15)
    assert shares() == {100}
    assert ApiKeyStore(bench.upkeep._link).revoke(much.id).share == 100  # type: ignore[union-attr]
    assert shares() == {0.1}
