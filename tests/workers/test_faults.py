"""What becomes of a core after its errors: a pure function of its history."""

import multiprocessing

from hypothesis import given
from hypothesis import strategies as st

from corelane.errors import CoreBusy, CoreLost, EngineError, RuntimeLost
from workers.core.faults import (
    BUSY_PAUSES_S,
    MOST_REASON_CHARS,
    RESTART_WINDOW_S,
    FaultHistory,
    FaultRecord,
    after_begin,
    after_end,
    after_fault,
    after_start,
)


def after(*errors: EngineError, every_s: float = 1, most: int = 5) -> FaultHistory:
    history = FaultHistory()
    for number, error in enumerate(errors):
        history = after_fault(history, error, 1000 + number * every_s, most)
    return history


def test_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    pauses = [after(*[RuntimeLost("timeout")] * count).pause_s for count in range(1, 6)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0


def test_core_that_is_restarted_too_often_goes_out_of_service_with_both_reasons() -> None:
    assert not after(*[RuntimeLost("status 5")] * 5).out
    history = after(*[RuntimeLost("status 5")] * 6)
    assert history.out
    assert history.restarts == 6
    assert "more than 5 times in ten minutes" in history.reason
    assert "status 5" in history.reason


def test_restarts_that_lie_far_apart_are_forgiven_and_counted() -> None:
    history = after(*[RuntimeLost("x")] * 50, every_s=RESTART_WINDOW_S / 4)
    assert not history.out
    assert history.restarts == 50
    assert after(*[RuntimeLost("x")] * 50, every_s=RESTART_WINDOW_S / 6).out


def test_process_that_was_killed_is_a_restart_and_no_fault() -> None:
    killed = after_begin(after_begin(FaultHistory()))
    assert (killed.restarts, killed.out, killed.pause_s) == (1, False, 0)
    assert after_begin(after_end(killed)).restarts == 1
    assert after_begin(after_fault(killed, RuntimeLost("x"), 0, 5)).restarts == 2


def test_broken_core_is_out_at_once() -> None:
    history = after(CoreLost("status 1202"))
    assert history.out
    assert history.reason == "status 1202"


def test_busy_core_is_asked_for_again_for_ever_but_ever_more_seldom() -> None:
    histories = [after(*[CoreBusy("held by 17")] * count) for count in range(1, 100)]
    assert not any(history.out for history in histories)
    assert [history.pause_s for history in histories[:5]] == list(BUSY_PAUSES_S)
    assert histories[-1].pause_s == BUSY_PAUSES_S[-1]
    assert histories[-1].restarts == 0


def test_served_core_begins_anew_with_waiting_but_not_with_restarts() -> None:
    history = after_start(after(RuntimeLost("a"), CoreBusy("b"), CoreBusy("c")))
    assert (history.busy, history.reason, history.restarts, len(history.recent)) == (0, "", 1, 1)


def test_next_process_gets_the_environment_that_every_error_asked_for() -> None:
    history = after(RuntimeLost("a", {"A": "1"}), RuntimeLost("b", {"B": "2"}), CoreBusy("c"))
    assert history.environment == {"A": "1", "B": "2"}


@given(st.text(max_size=3 * MOST_REASON_CHARS), st.floats(0, 1e9))
def test_history_is_read_as_it_was_saved(reason: str, now: float) -> None:
    record = FaultRecord()
    history = after_fault(FaultHistory(), RuntimeLost(reason.encode(errors="replace").decode(), {"A": "ü"}), now, 5)
    record.save(history)
    assert record.load() == history


def test_child_leaves_its_history_to_its_successor() -> None:
    record = FaultRecord()
    forked = multiprocessing.get_context("fork")
    child = forked.Process(target=lambda: record.save(after(CoreLost("broken"))))
    child.start()
    child.join()
    assert record.load().reason == "broken"
