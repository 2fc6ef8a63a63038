"""Any number of items through the client, against a service of real sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.client import Client
from corelane.client.bulk import run_all
from corelane.client.wire import cut_jobs, dump_body
from corelane.errors import ServiceError
from corelane.tasks.question_answering.wire import Question
from tests.corelane.stand_in import ITEM, StandIn, many, problem


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 7), st.integers(50, 600))
def test_cut_jobs_keeps_order_and_limits(sizes: list[int], max_items: int, max_bytes: int) -> None:
    items = [{"question": "q", "context": "x" * size} for size in sizes]
    jobs = list(cut_jobs(items, max_items, max_bytes))
    assert [item for job in jobs for item in job] == items
    assert all(0 < len(job) <= max_items for job in jobs)
    assert all(len(job) == 1 or len(dump_body(job)) <= max_bytes + 2 for job in jobs)


def test_run_all_numbers_results_over_jobs_and_bounds_what_is_under_way(client: Client, service: StandIn) -> None:
    results = list(run_all(client, iter(many(3500)), priority="low", jobs_in_flight=2))
    assert [result.index for result in results] == list(range(3500))
    assert [result.id for result in results] == [str(index) for index in range(3500)]
    assert [len(body["items"]) for body in service.bodies] == [1000, 1000, 1000, 500]
    assert {body["priority"] for body in service.bodies} == {"low"}
    assert service.most_open == 2


def test_run_all_halves_jobs_that_are_too_large(client: Client, service: StandIn) -> None:
    service.max_items = 3
    results = list(run_all(client, many(10)))
    assert [result.id for result in results] == [str(index) for index in range(10)]
    assert all(result.answer for result in results)


def test_an_item_too_large_alone_fails_alone(client: Client, service: StandIn) -> None:
    service.max_items = 0
    results = list(run_all(client, [ITEM, Question(id="b", question="q", context="c")]))
    assert [(result.id, result.error and result.error.code) for result in results] == [
        ("a", "too_large"),
        ("b", "too_large"),
    ]


def test_an_item_too_large_alone_for_a_request_is_sent_as_lines(client: Client, service: StandIn) -> None:
    service.max_items, service.bounds_lines = 0, False
    assert [result.answer and result.answer.text for result in run_all(client, many(2))] == ["word0", "word1"]


def test_run_all_goes_on_with_what_is_under_way_while_the_service_takes_no_more(service: StandIn) -> None:
    service.max_open = 1
    with Client(service.url, patience_s=0) as client:
        results = list(run_all(client, many(2500), jobs_in_flight=3))
    assert [result.index for result in results] == list(range(2500))
    assert service.most_open == 1


@pytest.mark.parametrize("gone", [0, 1])
def test_run_all_cancels_what_is_under_way_when_closed(client: Client, service: StandIn, gone: int) -> None:
    results = run_all(client, many(2500), jobs_in_flight=2)
    next(results)
    service.refusals.extend([problem(404, "not_found", "it was deleted")] * gone)
    results.close()
    assert service.canceled == list(service.jobs)[gone:]
    assert len(service.jobs) == 2


def test_run_all_passes_on_a_refusal_that_concerns_every_item(client: Client, service: StandIn) -> None:
    service.refusals.append(problem(422, "unknown_model", "there is no model 'x'"))
    with pytest.raises(ServiceError, match="no model"):
        list(run_all(client, many(3), model="x"))
