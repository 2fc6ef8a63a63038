"""Jobs sent as lines, results dropped as they are read, shared passages; keys and deadlines."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import suppress

import orjson
import pytest
import redis

from corelane.domain.jobs import Job, JobStatus, Result
from corelane.errors import ServiceError
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question
from tests.tools.fleet import Fleet
from tests.tools.question_jobs import QuestionHead
from tests.tools.waiting import eventually

NDJSON = {"Content-Type": "application/x-ndjson"}
TALK = "The committee met again in the spring and talked for hours about roads, bridges and the price of bread. "

PASSAGES = {
    "tower": "The Eiffel Tower was completed in March 1889 and is 330 metres tall. Gustave Eiffel's company built it.",
    "bread": TALK * 30 + "A loaf cost eleven cents in Lisbon.",
    "東京": "The concert was in 東京 🗼, and Zoë sang for two hours.",
}
QUESTIONS = {
    "tower": ("When was the tower completed?", "How tall is the tower?", "Whose company built it?"),
    "bread": ("What did a loaf cost?", "Where did a loaf cost eleven cents?"),
    "東京": ("Where was the concert?", "Who sang?", "How long did Zoë sing?"),
}


def short(count: int) -> Iterator[dict[str, str]]:
    for n in range(count):
        yield {"id": f"n{n}", "question": "What is the number?", "context": f"The number is {n}. The rest is noise."}


def long(count: int) -> Iterator[dict[str, str]]:
    for n in range(count):
        yield {"id": f"n{n}", "question": "What is the number?", "context": f"The number is {n}. {TALK * 40}"}


def kept(fleet: Fleet) -> tuple[set[str], set[bytes]]:
    """Files of large jobs, and jobs."""
    folder = fleet.data / "files"
    with redis.Redis.from_url(fleet.redis_url()) as raw:
        jobs = set(raw.scan_iter("cl:job:*", count=1000))
    return {path.name for path in folder.iterdir()} if folder.exists() else set(), jobs


def spans(results: list[Result]) -> list[tuple[str, int, int] | None]:
    return [(each.answer.text, each.answer.start, each.answer.end) if each.answer else None for each in results]


@pytest.fixture
def backlog(fleet: Fleet) -> Iterator[Job]:
    """Submit a job that keeps every core busy until the test is over."""
    with fleet.client() as client:
        job = client.submit(long(500))
        yield job
        client.cancel(job.id)
    fleet.wait_whole()


def test_job_of_lines_is_answered_in_order_under_its_head(fleet: Fleet) -> None:
    contexts = {f"c{n}": f"The number is {n}. The rest is noise." for n in range(10)}
    shared = ({"id": f"n{n}", "question": "What is the number?", "context_id": f"c{n}"} for n in range(10))
    own = (item for item in short(250) if int(item["id"][1:]) >= 10)
    head = QuestionHead(options=AnswerOptions(top_k=2), contexts=contexts, metadata={"run": "7"})
    with fleet.client() as client:
        job = client.submit_lines((item for part in (shared, own) for item in part), head)
        assert (job.status, job.counts.total, job.metadata) == (JobStatus.QUEUED, 250, {"run": "7"})
        results = list(client.iter_results(job.id))
        final = client.get(job.id)
    assert (final.status, final.counts.succeeded, final.options.top_k) == (JobStatus.SUCCEEDED, 250, 2)
    assert [result.index for result in results] == list(range(250))
    assert [result.id for result in results] == [f"n{n}" for n in range(250)]
    assert sum(result.answer is not None and result.answer.text == str(n) for n, result in enumerate(results)) > 235
    eventually(lambda: f"{job.id}.jsonl" not in kept(fleet)[0])


def test_dropped_results_are_gone_and_reading_goes_on_behind_them(fleet: Fleet) -> None:
    with fleet.client() as client:
        job = client.wait(client.submit_lines(short(150)).id)
        first = client.drop_results(job.id, 100).results_from
        assert 0 < first <= 100
        assert client.drop_results(job.id, 1).results_from == first
        assert [result.index for result in client.iter_results(job.id)] == list(range(first, 150))
    for accepted in ("application/json", NDJSON["Content-Type"]):
        refused = fleet.api.get(job.urls.results, params={"after": str(first - 1)}, headers={"Accept": accepted})
        assert (refused.status_code, refused.json()["code"]) == (410, "results_dropped")
        assert refused.headers["content-type"] == "application/problem+json"
    streamed = fleet.api.get(job.urls.results, headers={"Accept": NDJSON["Content-Type"]}).text.splitlines()
    assert [orjson.loads(line)["index"] for line in streamed] == list(range(first, 150))


def test_canceled_job_of_lines_ends_whole_and_its_file_stays_until_it_is_deleted(fleet: Fleet) -> None:
    with fleet.client() as client:
        job = client.submit_lines(long(3000))
        eventually(lambda: client.get(job.id).counts.done > 0)
        canceled = client.cancel(job.id)
        assert canceled.status is JobStatus.CANCELED
        assert canceled.counts.succeeded + canceled.counts.canceled == 3000
        fleet.wait_whole()
        assert client.get(job.id).counts == canceled.counts
        results = list(client.iter_results(job.id))
    assert [result.index for result in results] == list(range(3000))
    assert sum(result.status is JobStatus.SUCCEEDED for result in results) == canceled.counts.succeeded
    assert {result.status for result in results} == {JobStatus.SUCCEEDED, JobStatus.CANCELED}
    assert f"{job.id}.jsonl" in kept(fleet)[0]
    assert fleet.api.delete(job.urls.self).status_code == 204
    eventually(lambda: f"{job.id}.jsonl" not in kept(fleet)[0])


def test_bad_line_early_in_an_endless_job_ends_its_sending(fleet: Fleet) -> None:
    def items() -> Iterator[dict[str, str]]:
        yield {"question": "What is the number?"}
        yield from itertools.repeat({"question": "What is the number?", "context": TALK * 1000})

    with fleet.client() as client, pytest.raises(ServiceError, match="line 2") as caught:
        client.submit_lines(items())
    assert caught.value.status == 422


def test_refusal_reaches_a_sender_whose_lines_are_waiting_to_be_read(fleet: Fleet) -> None:
    line = orjson.dumps(next(short(1))) + b"\n"
    address = (fleet.url.split("/")[2].split(":")[0], int(fleet.url.rsplit(":", 1)[1]))
    with socket.create_connection(address, timeout=20) as sender:
        sender.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n")
        sender.sendall(b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b'{"model": "nobody"}\n'))
        with suppress(ConnectionError):
            while True:
                sender.sendall(chunk(line * 500))
        assert sender.recv(100).startswith(b"HTTP/1.1 422")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_shared_passages_are_answered_as_if_each_item_had_its_own(fleet: Fleet) -> None:
    pairs = [(name, question) for name, asked in QUESTIONS.items() for question in asked]
    own = [{"question": question, "context": PASSAGES[name]} for name, question in pairs]
    shared = [Question(question=question, context_id=name) for name, question in pairs]
    with fleet.client() as client:
        expected = spans(list(client.iter_results(client.submit(own).id)))
        as_json = client.submit(shared, contexts=PASSAGES)
        as_lines = client.submit_lines(shared, QuestionHead(contexts=PASSAGES))
        assert spans(list(client.iter_results(as_json.id))) == expected
        assert spans(list(client.iter_results(as_lines.id))) == expected
    assert ("March 1889", 34, 44) in expected


def test_lone_question_does_not_wait_for_a_backlog(fleet: Fleet, backlog: Job) -> None:
    with fleet.client() as client:
        result = client.ask("What is the number?", "The number is 7.")
    with fleet.client() as client:
        standing = client.get(backlog.id)
    assert result.answer is not None
    assert result.answer.text == "7"
    assert not standing.status.is_final


def test_job_whose_time_is_over_before_its_turn_expires(fleet: Fleet, backlog: Job) -> None:
    with fleet.client() as client:
        job = client.wait(client.submit(short(20), expires_in_s=0.001).id)
        standing = client.get(backlog.id)
    assert (job.status, job.counts.expired) == (JobStatus.EXPIRED, 20)
    assert {result.status for result in job.results or []} == {JobStatus.EXPIRED}
    assert not standing.status.is_final
