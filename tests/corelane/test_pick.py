"""Who is next, as `pick.lua` decides it: run without Redis, on what it is given."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lupa import lua51

from corelane.domain.dispatch import BESIDE_TOKENS, LOW_TURN, SMALL_WEIGHT
from corelane.store.link.library import FOLDER, constants

LUA = lua51.LuaRuntime()
PICK: Any = LUA.execute(f"{constants()}local pick = {{}}\n{(FOLDER / 'pick.lua').read_text()}\nreturn pick")

TOKENS = st.integers(1, 5000)


def kind_of(**waiting: object) -> str | None:
    """Which kind is next, of what waits."""
    found = PICK.next(LUA.table_from(waiting))
    return found[0] if isinstance(found, tuple) else found


def claim(**given: object) -> Any:
    return LUA.table_from({"tokens": 0, "taken": 0, "last": 0, "room": 4096, "met": LUA.table_from({})} | given)


def test_every_eighth_claim_begins_with_the_lowest_priority() -> None:
    firsts = [list(PICK.priorities(turn).values()) for turn in range(1, 2 * LOW_TURN + 1)]
    assert [turn for turn, order in enumerate(firsts, 1) if order == [2, 1, 0]] == [LOW_TURN, 2 * LOW_TURN]
    assert all(order == [0, 1, 2] for turn, order in enumerate(firsts, 1) if turn % LOW_TURN)


def test_what_waits_alone_is_next() -> None:
    assert kind_of() is None
    assert kind_of(small="s", charged=10, level=0) == "small"
    assert kind_of(larger="l", charged=0, level=10) == "larger"


@given(st.integers(0, 9000), st.integers(0, 9000))
def test_small_jobs_go_first_while_they_were_charged_no_more_than_the_larger(charged: int, level: int) -> None:
    kind = kind_of(small="s", larger="l", charged=charged, level=level)
    assert kind == ("small" if charged <= level else "larger")


@given(TOKENS, TOKENS)
def test_endless_small_jobs_have_eight_tokens_for_each_of_a_larger_job(small: int, larger: int) -> None:
    served, charged = Counter[str](), None
    while min(served["small"], served["larger"]) < 20 * max(small, larger):
        waiting = {"small": "s", "larger": "l", "charged": charged, "level": served["larger"]}
        kind = kind_of(**waiting)
        assert kind is not None
        tokens = small if kind == "small" else larger
        served[kind] += tokens
        if kind == "small":
            charged = PICK.small_charge(LUA.table_from(waiting), tokens)
    slack = SMALL_WEIGHT * larger + small
    assert abs(served["small"] - SMALL_WEIGHT * served["larger"]) <= slack


@given(TOKENS, TOKENS)
def test_claim_keeps_to_its_room_but_takes_at_least_one(spare: int, last: int) -> None:
    assert PICK.has_room(claim(), spare, 128)
    assert PICK.has_room(claim(tokens=spare - 1, taken=1, last=last), spare, 128)
    assert not PICK.has_room(claim(tokens=spare, taken=1, last=last), spare, 128)
    assert not PICK.has_room(claim(tokens=1, taken=128), spare, 128)


@pytest.mark.parametrize(("tokens", "takes"), [(500, True), (501, False)])
def test_claim_beside_idle_cores_takes_half_a_slice_beyond_its_part_at_most(tokens: int, takes: bool) -> None:
    assert PICK.has_room(claim(tokens=tokens, taken=1, last=1000, part=1000), 4096, 128) is takes


def test_full_core_takes_only_what_it_has_not_met() -> None:
    full = claim(tokens=4096)
    assert PICK.may_take(full, "o:1") == (True, True)
    PICK.note_met(full.met, "o:1", "larger", 0)
    assert PICK.may_take(full, "o:1") == (True, False)
    PICK.note_met(full.met, "o:1", "small", BESIDE_TOKENS - 1)
    assert PICK.may_take(full, "o:1") == (True, False)
    PICK.note_met(full.met, "o:1", "small", BESIDE_TOKENS)
    assert PICK.may_take(full, "o:1") == (False, False)
    full.tokens = 0
    assert PICK.may_take(full, "o:1") == (True, True)
