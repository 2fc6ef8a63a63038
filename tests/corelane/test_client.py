"""The client, against a service of real sockets."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from werkzeug import Response

from corelane.bulk import answer_all, cut_jobs
from corelane.client import FOREIGN, LONGEST_PAUSE_S, Client, dump_body, local_url, pause_s, read_problem
from corelane.errors import InvalidInput, ServiceError, ServiceUnreachable
from corelane.jobs import Item, JobStatus, Options
from tests.corelane.stand_in import StandIn, problem

ITEM = {"id": "a", "question": "Who?", "context": "Ada wrote it."}


@pytest.fixture
def service(httpserver: HTTPServer) -> StandIn:
    return StandIn(httpserver)


@pytest.fixture
def client(service: StandIn) -> Iterator[Client]:
    with Client(service.url, timeout_s=5, max_retries=2) as client:
        yield client


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def many(count: int) -> list[dict[str, str]]:
    return [{"id": str(index), "question": "Who?", "context": f"word{index} is here"} for index in range(count)]


def test_importing_the_client_imports_no_server_and_no_torch() -> None:
    code = (
        "import sys, corelane.client, corelane.bulk;"
        "sys.exit(bool({'torch', 'redis', 'celery', 'fastapi', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ask_returns_the_answer_in_one_request(client: Client, service: StandIn) -> None:
    result = client.ask("Who?", "Ada wrote it.", top_k=2)
    assert result.answer is not None
    assert (result.answer.text, result.answer.start, result.answer.end) == ("Ada", 0, 3)
    assert service.requests == ["POST /v1/jobs"]
    assert service.bodies[0]["options"] == {"top_k": 2}


def test_submit_sends_only_what_was_given(client: Client, service: StandIn) -> None:
    job = client.submit([ITEM, Item(question="When?", context="In 1843.")], options=Options(top_k=3))
    assert job.status is JobStatus.RUNNING
    assert service.bodies == [
        {"items": [ITEM, {"question": "When?", "context": "In 1843."}], "model": "default", "options": {"top_k": 3}}
    ]


def test_wait_returns_the_final_job(client: Client, service: StandIn) -> None:
    service.polls_until_final = 3
    job = client.wait(client.submit([ITEM]).id)
    assert job.status.is_final
    assert job.results is not None


def test_wait_returns_the_job_as_it_stands_when_its_time_is_over(client: Client, service: StandIn) -> None:
    service.polls_until_final = 10_000
    started = time.monotonic()
    job = client.wait(client.submit([ITEM]).id, timeout_s=0.5)
    assert job.status is JobStatus.RUNNING
    assert 0.4 < time.monotonic() - started < 3


def test_a_service_that_ignores_waiting_is_not_hammered(client: Client, service: StandIn) -> None:
    service.polls_until_final = 10_000
    client.wait(client.submit([ITEM]).id, timeout_s=1)
    assert len(service.requests) < 12


def test_results_follow_a_running_job_to_its_end(client: Client, service: StandIn) -> None:
    service.polls_until_final = 2
    results = list(client.iter_results(client.submit(many(1300)).id))
    assert [result.id for result in results] == [str(index) for index in range(1300)]
    assert [result.index for result in results] == list(range(1300))


def test_results_missing_from_a_final_job_end_in_an_error(client: Client, service: StandIn) -> None:
    job = client.submit([ITEM])
    for _ in range(2):
        service.refusals.append(Response('{"object": "list", "data": [], "has_more": true, "next": "0"}'))
        service.refusals.append(Response(dump_body(service.describe(job.id) | {"status": "succeeded"})))
    with pytest.raises(ServiceError, match="does not answer as Corelane does"):
        list(client.iter_results(job.id))


def test_cancel_cores_models_and_ready_reach_their_paths(client: Client, service: StandIn) -> None:
    job = client.submit([ITEM])
    assert client.cancel(job.id).id == job.id
    assert client.cores() == client.models() == [{"id": "one"}]
    assert client.ready()
    assert service.requests[1:] == [f"POST /v1/jobs/{job.id}/cancel", "GET /v1/cores", "GET /v1/models", "GET /readyz"]


def test_ready_is_false_where_nobody_answers_or_nothing_is_ready(client: Client, service: StandIn) -> None:
    service.refusals.append(problem(503, "not_ready", "no core"))
    assert not client.ready()
    with Client(local_url("127.0.0.1", free_port())) as nobody:
        assert not nobody.ready()


def test_a_problem_becomes_an_error_with_its_words(client: Client) -> None:
    with pytest.raises(ServiceError, match="there is no job job_no") as caught:
        client.get("job_no")
    assert (caught.value.status, caught.value.problem_code) == (404, "not_found")


def test_a_strange_job_id_stays_one_path_segment(client: Client, service: StandIn) -> None:
    service.refusals.append(problem(404, "not_found", "no"))
    with pytest.raises(ServiceError):
        client.get("../cores?x=\x01")
    assert service.requests[0].startswith("GET /v1/jobs/")


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_service_is_asked_again(client: Client, service: StandIn, status: int) -> None:
    service.refusals.extend(problem(status, "overloaded", "later", retry_after="0") for _ in range(2))
    assert client.submit([ITEM]).counts.total == 1
    assert len(service.requests) == 3


def test_retries_end(client: Client, service: StandIn) -> None:
    service.refusals.extend(problem(429, "overloaded", "later", retry_after="0") for _ in range(9))
    with pytest.raises(ServiceError, match="later") as caught:
        client.cores()
    assert caught.value.status == 429
    assert len(service.requests) == 3


def test_a_bad_gateway_is_retried_for_reads_but_never_for_a_job(client: Client, service: StandIn) -> None:
    service.refusals.append(Response("<html>bad gateway", 502))
    assert client.cores()
    service.refusals.append(Response("<html>bad gateway", 502))
    with pytest.raises(ServiceError, match="HTTP 502 without a reason"):
        client.submit([ITEM])


def test_a_job_whose_body_was_sent_is_never_sent_again(service: StandIn) -> None:
    service.delays.append(0.6)
    with Client(service.url, timeout_s=0.2) as client, pytest.raises(ServiceUnreachable, match="is not known"):
        client.submit([ITEM])
    time.sleep(0.7)
    assert service.requests == ["POST /v1/jobs"]


def test_a_read_that_timed_out_is_tried_again(service: StandIn) -> None:
    service.delays.append(0.4)
    with Client(service.url, timeout_s=0.2) as client:
        assert client.cores()


def test_nobody_at_the_address_says_how_to_start_one() -> None:
    url = local_url("127.0.0.1", free_port())
    with Client(url, max_retries=1) as client, pytest.raises(ServiceUnreachable, match=f"{url}; start one"):
        client.submit([ITEM])


def test_a_service_that_starts_late_is_found() -> None:
    server = HTTPServer(port=free_port())
    service = StandIn(server)
    with Client(service.url, max_retries=0) as client, pytest.raises(ServiceUnreachable):
        client.cores()
    server.start()
    with Client(service.url) as client:
        assert client.cores()
    server.stop()


@pytest.mark.parametrize("body", ["<html>hello", "[]", '{"object": "job"}', '{"data": 1}'])
def test_another_server_is_recognised(client: Client, service: StandIn, body: str) -> None:
    for call in (lambda: client.get("job_x"), lambda: client.cores()):
        service.refusals.append(Response(body))
        with pytest.raises(ServiceError, match="does not answer as Corelane does"):
            call()


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://x", "http://", "http://[::1", "http://x:99999999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="is not a service's address"):
        Client(address)


def test_text_that_is_not_unicode_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        client.ask("Who?", "\ud800")


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")]
)
def test_local_url_can_be_connected_to(host: str, url: str) -> None:
    assert local_url(host, 1) == url


@given(st.integers(0, 10_000), st.one_of(st.none(), st.text(max_size=5)), st.floats(0, 1, exclude_max=True))
def test_pauses_are_bounded_and_respect_the_service(attempt: int, retry_after: str | None, chance: float) -> None:
    pause = pause_s(attempt, retry_after, chance)
    assert 0 <= pause <= LONGEST_PAUSE_S
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        assert pause >= min(float(retry_after), LONGEST_PAUSE_S)


@given(st.integers(400, 599), st.binary(max_size=60))
def test_any_refusal_can_be_read(status: int, body: bytes) -> None:
    error = read_problem(status, body)
    assert (error.status, error.problem_code) == (status, FOREIGN)


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 7), st.integers(50, 600))
def test_cut_jobs_keeps_order_and_limits(sizes: list[int], max_items: int, max_bytes: int) -> None:
    items = [{"question": "q", "context": "x" * size} for size in sizes]
    jobs = list(cut_jobs(items, max_items, max_bytes))
    assert [item for job in jobs for item in job] == items
    assert all(0 < len(job) <= max_items for job in jobs)
    assert all(len(job) == 1 or len(dump_body(job)) <= max_bytes + 2 for job in jobs)


def test_answer_all_numbers_results_over_jobs_and_bounds_what_is_under_way(client: Client, service: StandIn) -> None:
    results = list(answer_all(client, iter(many(3500)), jobs_in_flight=2))
    assert [result.index for result in results] == list(range(3500))
    assert [result.id for result in results] == [str(index) for index in range(3500)]
    assert [len(body["items"]) for body in service.bodies] == [1000, 1000, 1000, 500]
    assert service.most_open == 2


def test_answer_all_halves_jobs_that_are_too_large(client: Client, service: StandIn) -> None:
    service.max_items = 3
    results = list(answer_all(client, many(10)))
    assert [result.id for result in results] == [str(index) for index in range(10)]
    assert all(result.answer for result in results)


def test_an_item_too_large_alone_fails_alone(client: Client, service: StandIn) -> None:
    service.max_items = 0
    results = list(answer_all(client, [ITEM, Item(id="b", question="q", context="c")]))
    assert [(result.id, result.error and result.error.code) for result in results] == [
        ("a", "too_large"),
        ("b", "too_large"),
    ]


def test_answer_all_goes_on_with_what_is_under_way_while_the_service_takes_no_more(service: StandIn) -> None:
    service.max_open = 1
    with Client(service.url, max_retries=0) as client:
        results = list(answer_all(client, many(2500), jobs_in_flight=3))
    assert [result.index for result in results] == list(range(2500))
    assert service.most_open == 1


def test_answer_all_cancels_what_is_under_way_when_closed(client: Client, service: StandIn) -> None:
    results = answer_all(client, many(2500), jobs_in_flight=2)
    next(results)
    results.close()
    assert service.canceled == list(service.jobs)
    assert len(service.canceled) == 2


def test_answer_all_passes_on_a_refusal_that_concerns_every_item(client: Client, service: StandIn) -> None:
    service.refusals.append(problem(422, "unknown_model", "there is no model 'x'"))
    with pytest.raises(ServiceError, match="no model"):
        list(answer_all(client, many(3), model="x"))
