from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from corelane.domain.dispatch import PUBLIC
from corelane.domain.jobs import Priority
from corelane.engine.batching import OLDEST_TURN, SAVED_TOKENS, Choose, Share, WaitingItem, next_batch, smallest_fit
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, parse_buckets
from corelane.engine.task import Window
from corelane.errors import CompileFailed

LADDER = parse_buckets("16x64,8x128,8x256,4x384")

LENGTHS = st.lists(st.integers(1, 384), min_size=1, max_size=40)

OWNERS = st.sampled_from("abc")

ITEMS = st.lists(st.tuples(LENGTHS, OWNERS), max_size=20)


def waiting_items(
    lengths: list[list[int]],
    owner: str = PUBLIC,
    first: int = 0,
    job: str = "",
    priority: Priority = Priority.NORMAL,
) -> list[WaitingItem]:
    items = [WaitingItem(at, owner, priority.rank, job=job) for at, _ in enumerate(lengths, first)]
    for waiting, item in zip(items, lengths, strict=True):
        waiting.add([Window(n, n + 1, length) for n, length in enumerate(item)], LADDER)
    return items


def owned_items(items: list[tuple[list[int], str]]) -> list[WaitingItem]:
    return [waiting for arrival, (item, owner) in enumerate(items) for waiting in waiting_items([item], owner, arrival)]


def at_most(most: int) -> Choose:
    """Choose so many rows of one bucket at most."""
    return lambda bucket, _: ((bucket,), min(bucket.rows, most))


def run_batch(items: list[WaitingItem], shares: dict[str, Share], most: int = 32) -> list[WaitingItem]:
    """Return the items of the next batch, a row each."""
    chosen = next_batch(items, shares, at_most(most))
    assert chosen is not None
    return [item for item, _ in chosen[1]]


@given(ITEMS)
def test_every_window_runs_once_in_the_shortest_bucket_that_holds_it(lengths: list[tuple[list[int], str]]) -> None:
    items, shares = owned_items(lengths), dict[str, Share]()
    ran = []
    while (chosen := next_batch(items, shares)) is not None:
        bucket, rows = chosen
        assert 0 < len(rows) <= bucket.rows
        assert all(smallest_fit(window.length, LADDER) == bucket for _, window in rows)
        ran += [(item.arrival, window.start) for item, window in rows]
    assert sorted(ran) == [(arrival, n) for arrival, (item, _) in enumerate(lengths) for n in range(len(item))]
    assert all(item.left == item.tokens == 0 and not item.by_bucket for item in items)
    assert not shares


@given(ITEMS, st.integers(1, 16))
def test_batch_is_full_unless_its_bucket_has_no_more(lengths: list[tuple[list[int], str]], most: int) -> None:
    items, shares = owned_items(lengths), dict[str, Share]()
    while (chosen := next_batch(items, shares, at_most(most))) is not None:
        bucket, rows = chosen
        assert len(rows) <= min(bucket.rows, most)
        assert len(rows) == min(bucket.rows, most) or not any(bucket in item.by_bucket for item in items)


@given(ITEMS)
def test_who_has_had_least_of_those_that_wait_begins_the_batch(lengths: list[tuple[list[int], str]]) -> None:
    items, shares = owned_items(lengths), dict[str, Share]()
    had = dict.fromkeys("abc", 0)
    while any(item.left for item in items):
        waiting = {item.owner for item in items if item.left}
        chosen = next_batch(items, shares)
        assert chosen is not None
        assert had[chosen[1][0][0].owner] == min(had[owner] for owner in waiting)
        for item, window in chosen[1]:
            had[item.owner] += window.length


@given(st.lists(st.tuples(st.lists(st.integers(129, 256), min_size=1, max_size=40), OWNERS), max_size=20))
def test_tokens_of_owners_whose_windows_fit_one_bucket_stay_within_a_window_of_each_other(
    lengths: list[tuple[list[int], str]],
) -> None:
    items, shares = owned_items(lengths), dict[str, Share]()
    had = dict.fromkeys("abc", 0)
    while (chosen := next_batch(items, shares)) is not None:
        for item, window in chosen[1]:
            had[item.owner] += window.length
        waiting = {item.owner for item in items if item.left}
        if len(waiting) < 3:
            break
        assert max(had.values()) - min(had.values()) <= 256


@given(st.lists(LENGTHS, min_size=1, max_size=40), LENGTHS, st.integers(0, 10))
def test_lone_item_of_another_owner_is_in_the_very_next_batch(
    flood: list[list[int]], late: list[int], batches: int
) -> None:
    items, shares = waiting_items(flood, "a"), dict[str, Share]()
    for _ in range(batches):
        next_batch(items, shares)
    [lone] = waiting_items([late], "b", first=1000)
    assume(batches or lone.tokens < sum(item.tokens for item in items))
    assert run_batch([*items, lone], shares)[0] is lone


def test_owners_share_rows_by_their_shares() -> None:
    items, shares = [*waiting_items([[64]] * 90, "a"), *waiting_items([[64]] * 90, "b", 1000)], dict[str, Share]()
    for item in items[:90]:
        item.share = 3.0
    owners = [item.owner for _ in range(6) for item in run_batch(items, shares)]
    assert owners.count("a") == 3 * owners.count("b") == 72


def test_owner_with_little_waiting_shares_its_batch_with_others_like_it_alone() -> None:
    flood, shares = waiting_items([[64]] * 30, "flood"), dict[str, Share]()
    run_batch(flood, shares)
    first, second = waiting_items([[60]], "b", 100)[0], waiting_items([[60]], "c", 101)[0]
    chosen = next_batch([*flood, first, second], shares, little_tokens=64)
    assert chosen is not None
    assert [item for item, _ in chosen[1]] == [first, second]
    assert len(run_batch(flood, shares)) == 14


@given(st.lists(LENGTHS, min_size=1, max_size=40), LENGTHS, st.integers(0, 10))
def test_lone_item_beside_its_owners_own_batch_is_in_the_very_next_batch(
    flood: list[list[int]], late: list[int], batches: int
) -> None:
    items, shares = waiting_items(flood, job="flood"), dict[str, Share]()
    for _ in range(min(batches, OLDEST_TURN - 2)):
        next_batch(items, shares)
    [lone] = waiting_items([late], first=1000, job="lone")
    assume(lone.tokens < sum(item.tokens for item in items))
    assert run_batch([*items, lone], shares)[0] is lone


def test_question_does_not_share_its_batch_with_its_owners_own_flood() -> None:
    flood, shares = waiting_items([[64]] * 60, job="flood"), dict[str, Share]()
    run_batch(flood, shares)
    first, second = waiting_items([[60]], first=100, job="b")[0], waiting_items([[60]], first=101, job="c")[0]
    chosen = next_batch([*flood, first, second], shares, little_tokens=64)
    assert chosen is not None
    assert [item for item, _ in chosen[1]] == [first, second]
    assert len(run_batch(flood, shares)) == 16


def test_windows_of_neighbouring_buckets_share_a_batch_of_the_longest_row_where_they_are_let_in() -> None:
    items, shares = waiting_items([[60], [100], [250], [120, 50]], job="one"), dict[str, Share]()
    counted: list[Mapping[Bucket, int]] = []

    def two_shortest(first: Bucket, waiting: Mapping[Bucket, int]) -> tuple[Sequence[Bucket], int]:
        counted.append(waiting)
        return LADDER[:2] if first in LADDER[:2] else (first,), 8

    chosen = next_batch(items, shares, two_shortest)
    assert chosen is not None
    assert counted == [{LADDER[0]: 2, LADDER[1]: 2, LADDER[2]: 1}]
    assert chosen[0] == LADDER[1]
    assert chosen[1][0][0] is items[0]
    assert sorted(window.length for _, window in chosen[1]) == [50, 60, 100, 120]
    chosen = next_batch(items, shares, two_shortest)
    assert chosen is not None
    assert (chosen[0], [window.length for _, window in chosen[1]]) == (LADDER[2], [250])


def test_batch_takes_the_rows_of_its_job_that_are_nearest_in_length_and_begins_with_the_oldest() -> None:
    items = waiting_items([[length] for length in (40, 10, 64, 38, 20, 45)], job="one")
    assert run_batch(items, {}, most=3) == [items[0], items[3], items[5]]


def test_two_jobs_of_one_owner_share_by_tokens() -> None:
    items = [*waiting_items([[64]] * 200, job="one"), *waiting_items([[384]] * 40, first=200, job="other")]
    shares: dict[str, Share] = {}
    had = {"one": 0, "other": 0}
    for _ in range(12):
        for item in run_batch(items, shares):
            had[item.job] += 64 if item.job == "one" else 384
        assert abs(had["one"] - had["other"]) <= 4 * 384


def test_batch_is_not_starved_by_its_owners_questions_and_they_leave_no_trace() -> None:
    batch, shares = waiting_items([[384] * 8], job="batch"), dict[str, Share]()
    items = list(batch)
    for turn in range(8 * OLDEST_TURN):
        items += [waiting_items([[40]], first=100 + turn * 20 + n, job=f"{turn}.{n}")[0] for n in range(16)]
        next_batch(items, shares)
    assert batch[0].left == 0
    assert next_batch([batch[0], *waiting_items([[384] * 4], first=10_000, job="last")], shares) is not None
    assert shares[PUBLIC].larger.had.keys() == {"last"}


def test_questions_that_ask_for_little_go_before_their_owners_batch_each_time() -> None:
    batch, shares = waiting_items([[250]] * 60, job="batch"), dict[str, Share]()
    for turn in range(20):
        run_batch(batch, shares, most=1)
        questions = [waiting_items([[180]], first=100 + 3 * turn + n, job=f"{turn}.{n}")[0] for n in range(3)]
        waiting = [*batch, *questions]
        assert [run_batch(waiting, shares, most=1) for _ in questions] == [[question] for question in questions]


def test_owner_saves_up_for_a_burst_but_not_for_a_flood() -> None:
    flood, shares = waiting_items([[250]] * 400, "a"), dict[str, Share]()
    run_batch(waiting_items([[180]], "b"), shares)
    for _ in range(40):
        run_batch(flood, shares, most=1)
    burst = waiting_items([[180]] * 60, "b", first=1000)
    owners = [item.owner for _ in range(60) for item in run_batch([*flood, *burst], shares, most=1)]
    first = SAVED_TOKENS // 180
    assert set(owners[:first]) == {"b"}
    had = {owner: tokens * owners[first:].count(owner) for owner, tokens in (("a", 250), ("b", 180))}
    assert abs(had["a"] - had["b"]) <= 500


def test_longer_question_is_not_passed_over_again_and_again() -> None:
    """Callers ask again as soon as they are answered. All of them are answered about equally often."""
    lengths = [300 if caller % 4 == 0 else 40 for caller in range(32)]
    items = [waiting_items([[length]], first=n, job=f"{n}.0")[0] for n, length in enumerate(lengths)]
    shares, answers = dict[str, Share](), [0] * len(lengths)
    for turn in range(1, 400):
        chosen = next_batch(items, shares, at_most(2))
        assert chosen is not None
        for item, _ in chosen[1]:
            caller = int(item.job.partition(".")[0])
            answers[caller] += 1
            items.remove(item)
            items += waiting_items([[lengths[caller]]], first=100 * turn + caller, job=f"{caller}.{turn}")
    assert max(answers) <= 2 * min(answers)


def test_higher_priority_goes_before_what_came_first_and_is_shorter() -> None:
    items, shares = waiting_items([[64], [64]]), dict[str, Share]()
    [high] = waiting_items([[64, 64]], first=2, priority=Priority.HIGH)
    assert run_batch([*items, high], shares) == [high, high, *items]


@given(ITEMS)
@example([([60] * 118, "a"), ([60] * 115, "a")])
def test_one_owner_alone_is_served_as_if_there_were_no_owners(lengths: list[tuple[list[int], str]]) -> None:
    items, shares = waiting_items([item for item, _ in lengths]), dict[str, Share]()
    passed_over = 0
    while any(item.left for item in items):
        waiting = [item for item in items if item.left]
        oldest_first = passed_over == OLDEST_TURN - 1
        first = min(waiting, key=lambda item: (0 if oldest_first else item.left, item.arrival))
        passed_over = 0 if first is waiting[0] else passed_over + 1
        assert run_batch(items, shares)[0] is first


def test_one_question_at_a_time_gets_no_more_than_a_fair_share() -> None:
    flood, shares = waiting_items([[60]] * 400, "a"), dict[str, Share]()
    [question] = waiting_items([[380]], "b", first=1000)
    had = {"a": 0, "b": 0}
    for turn in range(40):
        for item in run_batch([*flood, question], shares):
            had[item.owner] += 380 if item is question else 60
        if not question.left:
            [question] = waiting_items([[380]], "b", first=1001 + turn)
    assert abs(had["a"] - had["b"]) <= 16 * 60


def test_newcomer_is_ahead_of_the_owner_that_has_had_least_by_what_it_saved_up() -> None:
    rich, shares = waiting_items([[384] * 100], "a"), dict[str, Share]()
    for _ in range(10):
        next_batch(rich, shares)
    late = waiting_items([[384] * 100], "b", first=1)
    owners = [item.owner for _ in range(10) for item in run_batch([*rich, *late], shares)]
    saved = SAVED_TOKENS // 384
    assert set(owners[:saved]) == {"b"}
    assert abs(owners.count("a") + saved - owners.count("b")) <= 6


def test_documents_of_two_owners_outlast_two_streams_of_questions() -> None:
    documents = [waiting_items([[384] * 8], owner, first)[0] for first, owner in enumerate("ab")]
    items, shares = list(documents), dict[str, Share]()
    for turn in range(16 * OLDEST_TURN):
        for n, owner in enumerate("ab"):
            items += waiting_items([[40]] * 8, owner, first=100 + turn * 20 + n * 8)
        next_batch(items, shares)
    assert [document.left for document in documents] == [0, 0]


def test_document_that_had_its_turn_while_nobody_asked_is_not_due_beside_the_next_question() -> None:
    [document] = waiting_items([[384] * 400])
    shares: dict[str, Share] = {}
    for turn in range(2 * OLDEST_TURN):
        assert run_batch([document], shares)[0] is document
        [question] = waiting_items([[40]], first=100 + turn)
        assert run_batch([document, question], shares) == [question]


def test_nothing_waiting_is_no_batch_and_clears_all_scores() -> None:
    shares = {"a": Share(ahead=100)}
    assert next_batch([], shares) is None
    assert not shares


def test_window_longer_than_every_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="385 tokens fit no bucket"):
        waiting_items([[385]])


def test_ladder_is_read_in_any_order() -> None:
    assert parse_buckets("4x384, 16x64") == (Bucket(64, 16), Bucket(384, 4))


def test_length_has_several_row_counts_where_rows_are_fixed() -> None:
    assert parse_buckets("8x128,1x128", fixed_rows=True) == (Bucket(128, 1), Bucket(128, 8))
    with pytest.raises(CompileFailed, match="stands twice"):
        parse_buckets("8x128,8x128", fixed_rows=True)
    with pytest.raises(CompileFailed, match="give each length once"):
        parse_buckets("8x128,1x128")


def test_default_ladder_keeps_batches_near_a_thousand_tokens_in_lengths_of_whole_tiles() -> None:
    ladder = parse_buckets(DEFAULT_BUCKETS)
    assert all(bucket.length % 32 == 0 for bucket in ladder)
    assert all(850 <= bucket.rows * bucket.length <= 1152 for bucket in ladder)


@pytest.mark.parametrize("text", ["", "8", "8x", "x64", "0x64", "8x8", "8x64,4x64", "-1x64", "8x64;4x128", "99999x64"])
def test_bad_ladder_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(CompileFailed):
        parse_buckets(text)
