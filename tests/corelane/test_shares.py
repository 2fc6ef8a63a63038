"""Fair shares between owners, charged by tokens."""

from collections import Counter

from corelane.domain.dispatch import BESIDE_TOKENS, Ref
from corelane.domain.jobs import Priority
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


def test_owners_share_by_tokens_not_by_items(bench: Bench) -> None:
    core = bench.core("a/0")
    long_items = [Question(question="who", context="ada " * 4000) for _ in range(40)]
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
