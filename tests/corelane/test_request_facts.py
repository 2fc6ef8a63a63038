"""Request ids and traces: a caller's own text, so what has not their form is as if it had not been sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.request_facts import RequestFacts, continue_trace, read_request_id, trace_id
from corelane.store.jobs.submission import Submission
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import Bench, keep
from tests.tools.question_jobs import QuestionHead

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_trace_goes_on_with_a_parent_of_ours() -> None:
    ours = continue_trace(f"00-{TRACE}-{PARENT}-01")
    assert ours.startswith(f"00-{TRACE}-")
    assert ours.endswith("-01")
    assert PARENT not in ours
    assert trace_id(ours) == TRACE
    assert continue_trace(ours) != ours


def test_later_version_is_read_as_the_one_there_is() -> None:
    assert continue_trace(f"cc-{TRACE}-{PARENT}-00-what-comes-later").startswith(f"00-{TRACE}-")


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01\n",
        f" 00-{TRACE}-{PARENT}-01",
    ],
)
def test_what_is_no_traceparent_is_dropped(text: str) -> None:
    assert continue_trace(text) == ""


@pytest.mark.parametrize("text", ["req-1", "0f2c9a", "550e8400-e29b-41d4-a716-446655440000", "Root=1-67891233-abcdef"])
def test_sound_request_id_is_kept(text: str) -> None:
    assert read_request_id(text) == text


@given(st.text(max_size=200))
def test_any_other_request_id_is_replaced_by_one_that_fits_a_header_and_a_log_line(text: str) -> None:
    taken = read_request_id(text)
    assert 1 <= len(taken) <= 128
    assert taken.isascii()
    assert taken.isprintable()
    assert " " not in taken


@pytest.mark.parametrize("kept", [{}, {"request_id": "a"}, {"request_id": "a", "traceparent": "b"}])
def test_job_keeps_what_is_known_of_its_request(bench: Bench, kept: dict[str, str]) -> None:
    request = RequestFacts(kept.get("request_id", ""), kept.get("traceparent", ""))
    submission = Submission(QuestionHead(), items=[Question(question="q", context="c")], request=request)
    job = bench.with_store(lambda store: keep(store, submission)).id
    fields = bench.raw.hgetall(f"cl:job:{{{job}}}")
    assert {name: fields[name] for name in ("request_id", "traceparent") if name in fields} == kept
