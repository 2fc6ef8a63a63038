"""Fair shares between owners, charged by tokens."""

from corelane.jobs import Item, Priority
from corelane.store.dispatch import Room
from tests.corelane.store_bench import VERSION, Bench, answer_all, answered, claimed


def test_newcomer_goes_before_a_flood(bench: Bench) -> None:
    core = bench.core("a/0")
    flood = bench.submit(3200, owner="flood")
    claim = claimed(core)
    lone = bench.submit(1, owner="other")
    core.commit(claim.lease, answered(claim))
    assert claimed(core).refs[0][0].job == lone
    assert bench.get(flood).status == "running"


def test_owners_share_by_tokens_not_by_items(bench: Bench) -> None:
    core = bench.core("a/0")
    long_items = [Item(question="who", context="ada " * 4000) for _ in range(40)]
    bench.submit(40, owner="long", items=long_items)
    bench.submit(3200, owner="short")
    served = {"long": 0, "short": 0}
    for _ in range(20):
        claim = claimed(core)
        for ref, _ in claim.refs:
            served[ref.owner] += ref.tokens
        core.commit(claim.lease, answered(claim))
    assert 0.7 < served["long"] / served["short"] < 1.4


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
    answer_all(core)
    answer_all(other)
    assert bench.waiting() == {}
    assert not bench.raw.exists("cl:owed", "cl:open:1", "cl:leases")
    assert bench.raw.keys("cl:shares:*") + bench.raw.keys("cl:lane*") == []


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
    room = Room(0, bench.settings.claim_tokens, [("flood", Priority.NORMAL.rank)])

    def claimed_now(room: Room) -> list[str]:
        claim = core.exchange({}, [], [VERSION], room=room, linger=True, idle=False).claim
        return [] if claim is None else [ref.job for ref, _ in claim.refs]

    assert claimed_now(room) == []
    assert bench.raw.get("cl:bell:a/0") == "r"
    lone, urgent = bench.submit(1, owner="other"), bench.submit(1, owner="flood", priority=Priority.HIGH)
    assert claimed_now(room) == [urgent, lone]
    assert claimed_now(Room(0, 0, room.met)) == []


def test_newcomer_with_a_flood_of_its_own_gets_one_slice_beyond_the_room(bench: Bench) -> None:
    core = bench.core("a/0")
    second = bench.submit(3200, owner="second")
    exchanged = core.exchange({}, [], [VERSION], room=Room(0, 1), linger=True, idle=False)
    assert exchanged.claim is not None
    assert [(ref.job, ref.first) for ref, _ in exchanged.claim.refs] == [(second, 0)]
