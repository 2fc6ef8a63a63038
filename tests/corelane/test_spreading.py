"""Small jobs over idle cores: how they are cut, and what each core claims."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.dispatch import WINDOW_TOKENS, cut_slices, spread_slices
from corelane.store.dispatch import Claim
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answer_all, claimed

#: A passage of some 170 tokens.
PASSAGE = "the old mill stands by the river bank and " * 16


def questions(count: int) -> list[Question]:
    return [Question(question=f"who is number {n}?", context=PASSAGE) for n in range(count)]


def items_of(claim: Claim | None) -> int:
    return 0 if claim is None else sum(ref.count for ref, _ in claim.refs)


@given(st.lists(st.integers(64, 9000), min_size=1, max_size=200), st.integers(0, 70))
def test_spread_slices_hold_every_item_once_within_both_bounds(tokens: list[int], idle: int) -> None:
    at = 0
    for first, count, total in spread_slices(tokens, 32, 4096, idle):
        assert first == at
        assert 1 <= count <= 32
        assert total == sum(tokens[first : first + count])
        assert total <= 4096 or count == 1
        at += count
    assert at == len(tokens)


@given(st.lists(st.integers(64, 384), min_size=1, max_size=200), st.integers(2, 16))
def test_spread_slices_give_each_idle_core_the_same_to_within_two_items(tokens: list[int], idle: int) -> None:
    slices = [total for *_, total in spread_slices(tokens, 1000, 4096, idle)]
    takers = min(idle, sum(tokens) // WINDOW_TOKENS, len(tokens))
    if takers > 1:
        each = -(-len(slices) // takers)
        assert max(slices) - min(slices) <= 2 * max(tokens)
        assert max(slices) * each <= sum(tokens) / takers + 2 * each * max(tokens)


@given(st.lists(st.integers(64, 9000), max_size=200), st.integers(0, 1))
def test_slices_are_as_before_without_two_idle_cores(tokens: list[int], idle: int) -> None:
    assert spread_slices(tokens, 32, 4096, idle) == list(cut_slices(tokens, 32, 4096))


def claim_each(cores: Sequence[LoneCore]) -> list[int]:
    return [items_of(core.claim([VERSION], linger=True)) for core in cores]


def test_job_of_twenty_is_shared_by_two_idle_cores(bench: Bench) -> None:
    cores = [bench.core("a/0"), bench.core("b/0")]
    bench.submit(20, items=questions(20))
    assert bench.raw.mget("cl:bell:a/0", "cl:bell:b/0") == ["r", "r"]
    assert claim_each(cores) == [10, 10]


def test_job_is_shared_by_the_idle_cores_alone(bench: Bench) -> None:
    busy, *idle = [bench.core(name) for name in ("a/0", "b/0", "c/0")]
    bench.submit(20, items=questions(20), owner="other")
    assert items_of(busy.claim([VERSION], linger=True))
    answer_all(idle[0])
    bench.submit(20, items=questions(20))
    assert claim_each(idle) == [10, 10]
    assert claim_each([busy]) == [0]


def test_core_takes_what_an_idle_one_leaves(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.core("b/0")
    job = bench.submit(20, items=questions(20))
    answer_all(core)
    assert bench.get(job).status == "succeeded"
    assert bench.waiting() == {}


def test_claim_is_as_large_as_ever_where_all_cores_have_work(bench: Bench) -> None:
    core, other = bench.core("a/0"), bench.core("b/0")
    bench.submit(20, items=questions(20))
    assert claim_each([core, other]) == [10, 10]
    bench.submit(20, items=questions(20))
    claim = claimed(core)
    assert [ref.count for ref, _ in claim.refs] == [20]


def test_questions_that_wait_are_shared_by_idle_cores(bench: Bench) -> None:
    cores = [bench.core("a/0"), bench.core("b/0")]
    for _ in range(8):
        bench.submit(1)
    assert claim_each(cores) == [4, 4]
