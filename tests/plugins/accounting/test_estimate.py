"""What jobs will cost, from what the items of their model cost before: classes, sums, curves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.domain.dispatch import LENGTHS, SMALL_TOKENS, cost_class, script_of
from corelane.domain.item_costs import CostClass, CostSums, RowCost
from corelane.plugins.accounting.estimate import ITEM_TOKENS, CostRates, Lot
from corelane.tasks.estimating import Estimator
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question

CLASSES = st.builds(
    CostClass,
    st.sampled_from(["one", "few", "many"]),
    st.sampled_from(["plain", "accented", "u04", "han"]),
    st.integers(0, len(LENGTHS)),
)


@st.composite
def sums(draw: st.DrawFn) -> CostSums:
    items = draw(st.integers(1, 10_000))
    estimated = items * draw(st.floats(64, 20_000))
    tokens = estimated * draw(st.floats(0.3, 3))
    return CostSums(items, estimated, tokens, items * draw(st.integers(1, 50)), draw(st.floats(0.001, 1000)))


#: What passes of 64 to 384 tokens take: beside their rows as long as 60 tokens do.
ROWS = [RowCost(length, (length + 60) / 20_000, (length + 8) / 20_000) for length in (64, 96, 128, 192, 256, 384)]

RATES = st.builds(
    CostRates,
    st.dictionaries(CLASSES, sums(), max_size=8),
    rows=st.one_of(st.just(()), st.just(ROWS)),
)

few = settings(max_examples=40)


def seconds(rates: CostRates, items: int, estimated: int, its_class: CostClass) -> float:
    found = rates.estimate({its_class: Lot(items, estimated, items)}).core_s
    assert found is not None
    return found


def test_class_tells_what_is_read_together_the_script_and_the_length() -> None:
    assert cost_class(0, 64, ["Ada wrote it."]) == "one:plain:0"
    assert cost_class(0, 3 * 65, ["Ada wrote it."] * 3) == "few:plain:1"
    assert cost_class(32, 64, ["Ada wrote it."]) == "many:plain:0"
    assert cost_class(0, SMALL_TOKENS + 1, ["Ada wrote it."]) == f"many:plain:{LENGTHS.index(2048)}"
    assert cost_class(0, 10**6, [""]) == f"many:plain:{len(LENGTHS)}"
    assert CostClass.decode("many:plain:3") == CostClass("many", "plain", 3)


def test_one_passage_with_a_foreign_name_is_not_another_script() -> None:
    plain = ["Ada Lovelace wrote the notes on the engine in 1843, and nobody else did. " * 5] * 31
    assert cost_class(0, 32 * 90, ["Zoë Šťastná wrote it.", *plain]) == "many:plain:1"
    assert cost_class(0, 32 * 90, ["Кто это написал, никто не знает."] * 32) == "many:u04:1"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain", "plain"),
        ("Über den Wäldern", "accented"),
        ("Кто это написал", "u04"),
        ("Ai đã viết những ghi chú này?", "marked"),
        ("谁写的这些笔记", "han"),
        ("ใครเขียน", "u0e"),
        ("누가 썼습니까", "hangul"),
        ("𠀀𠀁𠀂", "rare"),
        ("🙂🙃😀", "symbols"),
    ],
)
def test_script_is_told_from_the_bytes_of_a_character(text: str, script: str) -> None:
    assert script_of(text) == script


def test_nothing_measured_means_the_texts_own_estimate_and_no_core_seconds() -> None:
    found = CostRates().estimate({CostClass("few", "plain", 2): Lot(3, 300, 3)})
    assert (found.items, found.windows, found.tokens, found.core_s, found.known) == (3, 3, 300, None, 0.0)


ONE, MANY = CostClass("one", "plain", 2), CostClass("many", "plain", 2)

#: Core seconds of an item of 128 tokens by these: its row, and what each item takes in addition.
ITEM_S = ITEM_TOKENS * 392 / 384 / 20_000
ALONE_S, TOGETHER_S = 188 / 20_000 + ITEM_S, 136 / 20_000 + ITEM_S


def test_before_any_item_passes_tell_core_seconds() -> None:
    rates = CostRates(rows=ROWS)
    assert seconds(rates, 1, 128, ONE) == pytest.approx(ALONE_S)
    assert seconds(rates, 100, 12_800, MANY) == pytest.approx(100 * TOGETHER_S)
    assert seconds(rates, 1, 3840, CostClass("many", "plain", 11)) == pytest.approx(3840 / 20_000, rel=0.1)


def test_first_questions_tell_little_of_many_and_more_of_their_like() -> None:
    """The first question of a process is cold. A job of many was forecast at three times its cost by it."""
    cold = CostRates({ONE: CostSums(1, 128, 128, 1, 4 * ALONE_S)}, rows=ROWS)
    assert seconds(cold, 100, 12_800, MANY) == pytest.approx(100 * TOGETHER_S, rel=0.25)
    few = CostRates({ONE: CostSums(30, 3840, 3840, 30, 30 * 1.5 * ALONE_S)}, rows=ROWS)
    assert seconds(few, 1, 128, ONE) == pytest.approx(1.5 * ALONE_S, rel=0.1)
    assert seconds(few, 100, 12_800, MANY) == pytest.approx(1.5 * 100 * TOGETHER_S, rel=0.15)


def test_much_work_outweighs_passes() -> None:
    seen = {MANY: CostSums(5000, 640_000, 640_000, 5000, 500.0)}
    for its_class in (MANY, CostClass("few", "plain", 2)):
        assert seconds(CostRates(seen, rows=ROWS), 1, 128, its_class) == pytest.approx(0.1, rel=0.02)


def test_much_seen_class_is_estimated_as_it_was() -> None:
    seen = {
        CostClass("many", "plain", 2): CostSums(1000, 110_000, 90_000, 1000, 20.0),
        CostClass("one", "plain", 2): CostSums(1000, 110_000, 90_000, 1000, 40.0),
    }
    rates = CostRates(seen)
    for its_class, expected in ((CostClass("many", "plain", 2), 2.0), (CostClass("one", "plain", 2), 4.0)):
        found = rates.estimate({its_class: Lot(100, 11_000, 100)})
        assert found.tokens == pytest.approx(9000, rel=0.02)
        assert found.core_s == pytest.approx(expected, rel=0.03)
        assert found.known == 1


def test_unseen_class_is_estimated_from_its_likes() -> None:
    rates = CostRates({CostClass("many", "plain", 2): CostSums(1000, 100_000, 100_000, 1000, 13.2)})
    a_unit = 13.2 / (100_000 + 1000 * ITEM_TOKENS)
    assert seconds(rates, 1, 2000, CostClass("one", "han", 10)) == pytest.approx(
        (2000 + ITEM_TOKENS) * a_unit, rel=0.01
    )
    assert rates.estimate({CostClass("one", "han", 10): Lot(1, 2000, 6)}).known == 0


def test_item_between_two_lengths_costs_between_them() -> None:
    seen = {
        CostClass("many", "plain", 2): CostSums(5000, 500_000, 500_000, 5000, 50.0),
        CostClass("many", "plain", 6): CostSums(5000, 1_500_000, 1_500_000, 5000, 250.0),
    }
    found = seconds(CostRates(seen), 1, 200, CostClass("many", "plain", 4))
    assert found == pytest.approx(0.03, rel=0.05)


@few
@given(RATES, CLASSES, st.integers(1, 1000), st.integers(64, 20_000), st.integers(0, 5000))
def test_longer_items_never_cost_less(rates: CostRates, of: CostClass, items: int, tokens: int, more: int) -> None:
    if rates.whole.core_s:
        shorter, longer = seconds(rates, items, items * tokens, of), seconds(rates, items, items * (tokens + more), of)
        assert 0 < shorter <= longer * (1 + 1e-9)


@few
@given(RATES, CLASSES, st.integers(64, 20_000), st.integers(1, 500), st.integers(1, 500))
def test_items_of_one_length_add_up(rates: CostRates, of: CostClass, tokens: int, one: int, other: int) -> None:
    if rates.whole.core_s:
        both = seconds(rates, one, one * tokens, of) + seconds(rates, other, other * tokens, of)
        assert seconds(rates, one + other, (one + other) * tokens, of) == pytest.approx(both)


@few
@given(
    RATES, st.dictionaries(CLASSES, st.builds(lambda n, t: Lot(n, n * t, n), st.integers(1, 99), st.integers(64, 9999)))
)
def test_job_costs_what_its_parts_cost(rates: CostRates, lots: dict[CostClass, Lot]) -> None:
    whole = rates.estimate(lots)
    parts = [rates.estimate({each: lot}) for each, lot in lots.items()]
    assert whole.items == sum(part.items for part in parts)
    assert whole.windows == sum(part.windows for part in parts)
    assert abs(whole.tokens - sum(part.tokens for part in parts)) <= len(parts)
    assert (whole.core_s or 0) == pytest.approx(sum(part.core_s or 0 for part in parts))


def test_windows_follow_the_model_and_its_tokenizer() -> None:
    item = Question(question="Who wrote the notes on the engine?", context="Ada Lovelace wrote the notes. " * 100)
    estimator = Estimator({}, AnswerOptions())
    assert estimator.windows(Question(question="Who?", context="Ada."), 384, 1.0) == 1
    assert estimator.windows(item, 384, 1.0) == 3
    assert estimator.windows(item, 512, 1.0) == 2
    assert estimator.windows(item, 384, 2.0) > 5


def test_slower_machine_shows_in_classes_without_recent_work() -> None:
    one, many = CostClass("one", "plain", 2), CostClass("many", "plain", 2)
    seen = {each: CostSums(1000, 100_000, 100_000, 1000, 20.0) for each in (one, many)}
    slow = CostRates(seen, {many: CostSums(items=1000, tokens=100_000, core_s=40.0)})
    assert slow.pace == pytest.approx(2, rel=0.05)
    assert seconds(slow, 1, 100, one) == pytest.approx(2 * seconds(CostRates(seen), 1, 100, one), rel=0.05)
    little = CostRates(seen, {many: CostSums(items=1, tokens=100, core_s=0.04)})
    assert 1 < little.pace < 2
