"""The life of a model version: every event in every state, and what follows from the table as a whole."""

import itertools

import pytest

from corelane.engine.null import NullRunner
from workers.models.desired import DesiredModel
from workers.models.life import CLAIMING, NEXT, SERVING, TO_LOAD, TO_SWAP, ModelEvent, ModelState, next_state
from workers.models.table import ModelTable

S, E = ModelState, ModelEvent
DESIRED = DesiredModel("qa@1", 5)

#: The shortest way from nothing to each state.
WAYS: dict[ModelState, list[ModelEvent]] = {S.ABSENT: []}
for _ in S:
    for state, events in NEXT.items():
        for event, following in events.items():
            if state in WAYS:
                WAYS.setdefault(following, [*WAYS[state], event])


def send(table: ModelTable, event: ModelEvent) -> bool:
    """Send an event as its thread does."""
    if event is E.SWAP:
        return table.swap_runners(lambda _: False)[0]
    runner = NullRunner(DESIRED.version) if event is E.LOAD else None
    return table.handle(event, DESIRED, runner=runner)


def state_of(table: ModelTable) -> ModelState:
    status = table.statuses().get(DESIRED.version)
    return S.ABSENT if status is None else status.state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)), ids=str)
def test_every_event_in_every_state_leads_where_the_table_says_or_is_refused(
    state: ModelState, event: ModelEvent
) -> None:
    expected = next_state(state, event)
    table = ModelTable()
    for step in WAYS[state]:
        assert send(table, step)
    assert state_of(table) == state
    assert send(table, event) == (expected is not None)
    assert state_of(table) == (expected or state)


def test_every_state_is_reached_and_has_a_way_to_serve_and_a_way_out() -> None:
    assert set(WAYS) == set(NEXT) == set(S)
    for goal in (S.READY, S.ABSENT):
        leads = {goal}
        for _ in S:
            leads |= {state for state, events in NEXT.items() if leads & set(events.values())}
        assert leads == set(S)


def test_versions_are_claimed_for_exactly_where_a_runner_serves() -> None:
    for state, way in WAYS.items():
        table = ModelTable()
        for step in way:
            send(table, step)
        assert (DESIRED.version in table.served()) == (state in SERVING)
        assert (DESIRED.version in table.claimable()) == (state in CLAIMING)
        if state in SERVING:
            assert DESIRED.version in table.runners
        assert table.is_due(DESIRED) == (state in TO_LOAD)
        assert table.has_to_swap() == (state in TO_SWAP)


@pytest.mark.parametrize("event", [E.BEGIN, E.LOAD, E.FAIL])
def test_load_of_a_wish_that_has_changed_is_refused(event: ModelEvent) -> None:
    table = ModelTable()
    for step in WAYS[S.RELOADING]:
        send(table, step)
    assert not table.handle(event, DesiredModel("qa@1", 4), runner=NullRunner("qa@1"))
    assert state_of(table) == S.RELOADING


def test_busy_version_is_neither_replaced_nor_put_down() -> None:
    for state in (S.RELOADED, S.LEAVING):
        table = ModelTable()
        for step in WAYS[state]:
            send(table, step)
        before = table.runners[DESIRED.version]
        assert table.swap_runners(lambda version: version == DESIRED.version) == (False, [])
        assert table.runners[DESIRED.version] is before
        changed, [retired] = table.swap_runners(lambda _: False)
        assert (changed, retired.runner) == (True, before)
        assert table.swap_runners(lambda _: False) == (False, [])
