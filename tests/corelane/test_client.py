"""The client, against a service of real sockets."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from werkzeug import Response

from corelane.client import Client, JobItem, Wait, patience
from corelane.client.patience import LONGEST_PAUSE_S, pause_s
from corelane.client.transport import log_wait
from corelane.client.wire import FOREIGN, PIECE_BYTES, dump_body, dump_lines, read_problem
from corelane.domain.jobs import Job, JobStatus, Priority
from corelane.errors import InvalidInput, ServiceError, ServiceUnreachable
from corelane.settings.address import local_url
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question
from tests.corelane.both_clients import Awaited
from tests.corelane.stand_in import ITEM, StandIn, many, problem
from tests.tools.question_jobs import QuestionHead


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_importing_the_client_imports_no_server_and_no_torch() -> None:
    code = (
        "import sys, corelane.client, corelane.client.bulk;"
        "sys.exit(bool({'torch', 'redis', 'celery', 'fastapi', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ask_returns_the_answer_in_one_request(client: Client, service: StandIn) -> None:
    result = client.ask("Who?", "Ada wrote it.", top_k=2)
    assert result.answer is not None
    assert (result.answer.text, result.answer.start, result.answer.end) == ("Ada", 0, 3)
    assert service.requests == ["POST /v1/jobs"]
    assert service.bodies[0]["options"] == {"top_k": 2}


def test_submit_sends_only_what_was_given_even_if_it_is_nothing(client: Client, service: StandIn) -> None:
    client.submit([ITEM, Question(question="When?", context="In 1843.")], options=AnswerOptions(top_k=3))
    client.submit([ITEM], priority=Priority.LOW, expires_in_s=0, metadata={}, contexts={"p": "Ada wrote it."})
    client.submit([ITEM], priority="high", expires_in_s=2.5)
    rest = {"items": [ITEM], "model": "default"}
    assert service.bodies == [
        rest | {"items": [ITEM, {"question": "When?", "context": "In 1843."}], "options": {"top_k": 3}},
        rest | {"priority": "low", "expires_in_s": 0, "metadata": {}, "contexts": {"p": "Ada wrote it."}},
        rest | {"priority": "high", "expires_in_s": 2.5},
    ]


def test_items_share_a_context(client: Client) -> None:
    items = [{"question": f"Who {n}?", "context_id": "p"} for n in range(3)]
    job = client.wait(client.submit(items, contexts={"p": "Ada wrote it."}).id)
    assert [result.answer and result.answer.text for result in job.results or []] == ["Ada"] * 3


def test_every_call_carries_the_api_key_if_there_is_one(client: Client, service: StandIn) -> None:
    with Client(service.url, "key-1") as keyed:
        keyed.wait(keyed.submit([ITEM]).id)
        keyed.ready()
        keyed.cores()
    client.cores()
    assert service.keys == ["Bearer key-1"] * 4 + [None]


@pytest.mark.parametrize("key", ["two words", "line\n", "schlüssel", "\x7f"])
def test_an_api_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidInput, match="an API key is printable ASCII") as caught:
        Client(api_key=key)
    assert key not in str(caught.value)


def test_a_job_of_lines_is_sent_as_it_comes(client: Client, service: StandIn) -> None:
    head = QuestionHead(options=AnswerOptions(top_k=2), contexts={"p": "Grace did."})
    shared = {"id": "last", "question": "Who?", "context_id": "p"}
    items: list[JobItem] = [*many(2500), Question(question="Who?", context="Ada\n did."), shared]
    job = client.submit_lines(iter(items), head)
    assert job.counts.total == 2502
    [body] = service.bodies
    assert body["items"] == [*many(2500), {"question": "Who?", "context": "Ada\n did."}, shared]
    assert (body["options"], body["contexts"]) == ({"top_k": 2}, {"p": "Grace did."})
    results = list(client.iter_results(job.id))
    assert [result.answer and result.answer.text for result in results[-2:]] == ["Ada", "Grace"]
    client.submit_lines([{}, {"model": "x"}])
    assert service.bodies[1] == {"items": [{}, {"model": "x"}]}


@given(st.lists(st.integers(0, 3 * PIECE_BYTES // 2), max_size=8))
def test_lines_are_whole_in_order_and_held_a_piece_at_a_time(sizes: list[int]) -> None:
    taken = 0

    def items() -> Iterator[dict[str, str]]:
        nonlocal taken
        for size in sizes:
            taken += size
            yield {"context": "x" * size}

    sent = b""
    for piece in dump_lines({"model": "m"}, items()):
        sent += piece
        assert len(piece) < PIECE_BYTES + max([0, *sizes]) + 50
        assert taken <= len(sent)
    assert [*map(orjson.loads, sent.splitlines())] == [{"model": "m"}, *({"context": "x" * size} for size in sizes)]


def test_a_job_of_lines_is_never_sent_again(client: Client, service: StandIn) -> None:
    service.refusals.append(problem(429, "overloaded", "later", retry_after="0"))
    with pytest.raises(ServiceError, match="later"):
        client.submit_lines(iter(many(3)))
    assert service.requests == ["POST /v1/jobs"]


def test_what_breaks_the_callers_iterator_reaches_the_caller(client: Client, service: StandIn) -> None:
    def items() -> Iterator[dict[str, str]]:
        yield from many(2000)
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        client.submit_lines(items())
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        client.submit_lines([{"question": "\ud800"}])
    assert not service.jobs
    assert client.cores()


def test_wait_returns_the_job_as_it_stands_when_its_time_is_over(client: Client, service: StandIn) -> None:
    service.polls_until_final = 10_000
    assert client.wait(client.submit([ITEM]).id, timeout_s=1).status is JobStatus.RUNNING
    # The service ignores that it is asked to wait, and is not polled without pauses.
    assert len(service.requests) < 12


@pytest.mark.parametrize("drop", [False, True])
def test_results_follow_a_running_job_to_its_end(client: Client, service: StandIn, drop: bool) -> None:
    service.polls_until_final = 2
    job_id = client.submit_lines(many(1300)).id
    results = list(client.iter_results(job_id, drop=drop))
    assert [(result.index, result.id) for result in results] == [(index, str(index)) for index in range(1300)]
    assert client.get(job_id).results_from == (1300 if drop else 0)


def test_results_are_dropped_once_the_caller_asks_for_the_one_after_their_page(
    client: Client, service: StandIn
) -> None:
    job_id = client.submit(many(1200)).id
    client.wait(job_id)
    results = client.iter_results(job_id, drop=True)
    dropped = []
    for result in results:
        dropped.append(service.jobs[job_id]["dropped"])
        assert result.index == len(dropped) - 1
    assert dropped == [0] * 500 + [500] * 500 + [1000] * 200
    assert client.get(job_id).results_from == 1200
    assert list(client.iter_results(job_id)) == []


def test_a_caller_that_stops_reads_the_page_it_stopped_in_again(client: Client) -> None:
    job_id = client.submit(many(1200)).id
    client.wait(job_id)
    results = client.iter_results(job_id, drop=True)
    for _ in range(1000):
        next(results)
    results.close()
    assert client.get(job_id).results_from == 500
    assert [result.index for result in client.iter_results(job_id, drop=True)] == list(range(500, 1200))


def test_results_that_another_reader_dropped_are_gone(client: Client) -> None:
    job_id = client.submit(many(1200)).id
    client.wait(job_id)
    results = client.iter_results(job_id)
    next(results)
    assert client.drop_results(job_id, 600).results_from == 600
    with pytest.raises(ServiceError) as caught:
        list(results)
    assert (caught.value.status, caught.value.problem_code) == (410, "results_dropped")


def test_results_missing_from_a_final_job_end_in_an_error(client: Client, service: StandIn) -> None:
    job = client.submit([ITEM])
    for _ in range(2):
        service.refusals.append(Response('{"object": "list", "data": [], "has_more": true, "next": "0"}'))
        service.refusals.append(Response(dump_body(service.describe(job.id) | {"status": "succeeded"})))
    with pytest.raises(ServiceError, match="does not reply as Corelane does"):
        list(client.iter_results(job.id))


def test_jobs_are_listed_page_after_page(client: Client, service: StandIn) -> None:
    ids = [client.submit([ITEM]).id for _ in range(250)]
    assert [job.id for job in client.iter_jobs()] == ids[::-1]
    assert [job.id for job in client.iter_jobs(limit=101, status=["queued", JobStatus.RUNNING])] == ids[::-1][:101]
    assert service.requests[-1] == "GET /v1/jobs?limit=1&after=100&status=queued&status=running"


def test_a_job_with_a_name_is_put_there(client: Client, service: StandIn) -> None:
    job = service.describe(client.submit([ITEM], metadata={"run": "7"}).id)
    service.refusals.append(problem(503, "overloaded", "later", retry_after="0"))
    service.refusals.append(Response(dump_body(job)))
    client.submit([ITEM], name="my run/7")
    assert service.requests[-2:] == ["PUT /v1/jobs/my run/7"] * 2
    assert service.bodies[0]["metadata"] == {"run": "7"}


def test_events_come_once_and_in_order_however_often_the_stream_breaks(client: Client, service: StandIn) -> None:
    job = client.submit([ITEM]).id
    service.event_streams.extend([0, 1, 3, 1, 0, 2])
    events = list(client.iter_events(job))
    assert [event.id for event in events] == ["1-0", *(f"{n}-0" for n in range(3, 12))]
    assert [event.type for event in events] == ["job.running", *["job.progress"] * 8, "job.completed"]
    assert isinstance(events[-1].data, Job)
    assert events[-1].data.id == job
    assert len([request for request in service.requests if request.endswith("/events")]) == 7
    assert [event.id for event in client.iter_events(job, after="9-0")] == ["10-0", "11-0"]
    assert list(client.iter_events(job, after="11-0")) == []


@pytest.mark.parametrize("make", [Client, Awaited])
def test_a_stream_that_brings_nothing_more_is_given_up(service: StandIn, make: type[Client]) -> None:
    # The service asks for pauses of 10 ms.
    with make(service.url, patience_s=0.015) as client:
        job = client.submit([ITEM]).id
        service.event_streams.extend([2, 0, 0, 0])
        with pytest.raises(ServiceUnreachable, match="broke off its events"):
            list(client.iter_events(job))
        with pytest.raises(ServiceError, match="there is no job"):
            list(client.iter_events("job_no"))


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


def test_a_caller_is_told_why_a_call_waits_and_how_long(service: StandIn) -> None:
    told: list[Wait] = []
    for make in (Client, Awaited):
        service.refusals.extend(problem(429, "overloaded", "too much waits", retry_after="0") for _ in range(2))
        with make(service.url, on_wait=told.append) as client:
            client.submit([ITEM])
    assert [(str(wait.reason), wait.attempt) for wait in told] == [("too much waits", 0), ("too much waits", 1)] * 2
    assert [wait.waited_s for wait in told] == [0.0, told[0].seconds, 0.0, told[2].seconds]


def test_a_wait_is_a_warning_in_the_log_where_nobody_asks_to_be_told(caplog: pytest.LogCaptureFixture) -> None:
    refusal = ServiceError("too much waits", status=429, problem_code="overloaded")
    log_wait(Wait(refusal, 0.2))
    log_wait(Wait(refusal, 60.0, 121.0, 3))
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("corelane.client", "too much waits; waited 121 s, trying again in 60 s")
    ]


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_job_too_large_for_a_request_is_sent_as_lines(client: Client, service: StandIn, name: str | None) -> None:
    service.max_items, service.bounds_lines = 2, False
    given: dict[str, Any] = {"name": name} if name else {"idempotency_key": "key-1"}
    job = client.submit(iter(many(3)), priority="low", contexts={"p": "Ada."}, wait_s=5, **given)
    assert (job.counts.total, job.status) == (3, "succeeded")
    first, second = service.bodies
    assert first["items"] == second["items"] == many(3)
    assert (second["priority"], second["contexts"]) == ("low", {"p": "Ada."})
    assert service.requests[0] == service.requests[1]
    if name is None:
        assert service.idempotency_keys == ["key-1", "key-1"]


def test_a_job_that_lines_do_not_help_either_is_refused_in_its_own_words(client: Client, service: StandIn) -> None:
    service.max_items = 2
    with pytest.raises(ServiceError, match="at most 2 items"):
        client.submit(many(3))
    assert len(service.requests) == 2
    with pytest.raises(ServiceError, match="at most 2 items"):
        client.submit(many(3), or_lines=False)
    assert len(service.requests) == 3


@pytest.mark.parametrize("make", [Client, Awaited])
def test_patience_ends(service: StandIn, make: type[Client]) -> None:
    service.refusals.extend(problem(429, "overloaded", "later", retry_after="0") for _ in range(9))
    with make(service.url, patience_s=0.01) as client, pytest.raises(ServiceError, match="later") as caught:
        client.cores()
    assert caught.value.status == 429
    # A pause takes longer than this patience.
    assert len(service.requests) == 2


@pytest.mark.parametrize("make", [Client, Awaited])
def test_a_restart_is_outlived_however_many_tries_it_takes(make: type[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_OWN_PAUSE_S", 0.01)
    server = HTTPServer(port=free_port(), threaded=True)
    service = StandIn(server)
    server.start()

    def tell(wait: Wait) -> None:
        if wait.attempt == 20:
            service.is_away = False
            if not server.is_running():
                server.start()

    with make(service.url, on_wait=tell) as client:
        job_id = client.submit(many(1200)).id
        results = client.iter_results(job_id)
        first = [next(results) for _ in range(3)]
        service.is_away = True  # a proxy says so
        assert [result.index for result in [*first, *results]] == list(range(1200))
        events = client.iter_events(job_id)
        first_event = next(events)
        server.stop()  # nobody is there
        assert client.submit([ITEM]).counts.total == 1
        assert len([first_event, *events]) == 10
    server.stop()


@pytest.mark.parametrize("make", [Client, Awaited])
def test_results_go_on_after_the_last_one_that_the_caller_has(service: StandIn, make: type[Client]) -> None:
    service.polls_until_final = 3
    with make(service.url, patience_s=0) as client:
        job_id, read = client.submit(many(1300)).id, list[int]()
        for breaks in (2, 3, 0):
            with suppress(ServiceError):
                for result in client.iter_results(job_id, after=read[-1] if read else None):
                    read.append(result.index)
                    if breaks and len(read) % 450 == 0:
                        service.refusals.append(problem(503, "overloaded", "it stops"))
        assert read == list(range(1300))
        assert [result.index for result in client.iter_results(job_id, after=1297)] == [1298, 1299]
        assert list(client.iter_results(job_id, after=1299)) == []


def test_a_download_that_breaks_begins_again(client: Client, service: StandIn, tmp_path: Path) -> None:
    service.files["file_0"] = b'{"a": 1}\n' * 100
    service.refusals.append(problem(503, "overloaded", "it starts", retry_after="0"))
    service.refusals.append(Response(iter([b"torn"]), headers={"Content-Length": "900"}))
    client.download_file("file_0", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == service.files["file_0"]
    with pytest.raises(ServiceError, match="there is no file"):
        client.download_file("file_9", tmp_path / "none.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_job_is_sent_again_with_the_same_key_until_the_service_answers(client: Client, service: StandIn) -> None:
    service.refusals.append(Response("<html>bad gateway", 502))
    client.submit([ITEM])
    client.submit([ITEM])
    client.submit([ITEM], idempotency_key="mine")
    first, again, second, own = service.idempotency_keys
    assert first == again is not None
    assert len({first, second, own}) == 3
    assert own == "mine"


def test_a_cancel_is_never_sent_again(client: Client, service: StandIn) -> None:
    service.refusals.append(Response("<html>bad gateway", 502))
    with pytest.raises(ServiceError, match="HTTP 502 without a reason"):
        client.cancel("job_x")


def test_lines_that_were_sent_are_never_sent_again_but_a_read_is(service: StandIn) -> None:
    service.delays += [4, 4]
    with Client(service.url, timeout_s=1.5) as client:
        with pytest.raises(ServiceUnreachable, match="is not known"):
            client.submit_lines([ITEM])
        assert client.cores()
    assert service.requests == ["POST /v1/jobs", *["GET /v1/cores"] * 2]


def test_a_service_that_starts_late_is_found() -> None:
    server = HTTPServer(port=free_port())
    service = StandIn(server)
    with (
        Client(service.url, patience_s=0) as client,
        pytest.raises(ServiceUnreachable, match=f"{service.url}; start one"),
    ):
        client.cores()
    server.start()
    with Client(service.url) as client:
        assert client.cores()
    server.stop()


@pytest.mark.parametrize("body", ["<html>hello", "[]", '{"object": "job"}', '{"data": 1}'])
def test_another_server_is_recognised(client: Client, service: StandIn, body: str) -> None:
    for call in (lambda: client.get("job_x"), lambda: client.cores()):
        service.refusals.append(Response(body))
        with pytest.raises(ServiceError, match="does not reply as Corelane does"):
            call()


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://x", "http://", "http://[::1", "http://x:99999999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="is not a service's address"):
        Client(address)


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
