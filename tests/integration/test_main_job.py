"""The main job: question in, right answer out, with exact offsets."""

import socket
from itertools import pairwise
from urllib.parse import urlsplit

import orjson
import pytest

from corelane.tasks.question_answering.wire import Question
from tests.api.wires import request
from tests.tools.fleet import Fleet
from tests.tools.javascript import run_javascript
from tests.tools.passages import PASSAGES
from tests.tools.waiting import eventually

PASSAGE = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."


def test_question_is_answered_in_the_same_call_if_it_waits(fleet: Fleet) -> None:
    body = {"question": "When was the tower completed?", "context": PASSAGE, "id": "when", "metadata": {"a": "b"}}
    response = fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"})
    assert response.status_code == 200
    assert response.headers["Preference-Applied"] == "wait=30"
    job = response.json()
    assert job["status"] == "succeeded"
    assert job["counts"] == {"total": 1, "succeeded": 1, "failed": 0, "canceled": 0, "expired": 0}
    assert job["metadata"] == {"a": "b"}
    [result] = job["results"]
    assert (result["index"], result["id"], result["status"], result["windows"]) == (0, "when", "succeeded", 1)
    assert result["answer"]["text"] == "March 1889"
    assert PASSAGE[result["answer"]["start"] : result["answer"]["end"]] == "March 1889"
    assert result["answers"] == [result["answer"]]


def test_passage_has_as_many_answers_as_are_asked_for_and_worth_something(fleet: Fleet) -> None:
    question, context = "When was the tower painted?", "The tower was painted in 1889, in 1968 and again in 2001."
    with fleet.client() as client:
        answers = client.ask(question, context, top_k=3).answers
    assert {each.text for each in answers} == {"1889", "1968", "2001"}
    assert all(context[each.start : each.end] == each.text for each in answers)
    in_order = sorted(answers, key=lambda each: each.start)
    assert all(one.end <= other.start for one, other in pairwise(in_order))

    payload = {"inputs": {"question": question, "context": context}, "parameters": {"top_k": 3}}
    found = fleet.api.post("/v1/hf/question-answering", json=payload).json()
    assert [each["answer"] for each in found] == [each.text for each in answers]
    short = {"inputs": {"question": "Who?", "context": "Ada"}, "parameters": {"top_k": 2}}
    [only] = fleet.api.post("/v1/hf/question-answering", json=short).json()
    assert only["answer"] == "Ada"


def test_job_is_accepted_at_once_and_found_by_its_location(fleet: Fleet) -> None:
    response = fleet.api.post("/v1/jobs", json={"question": "How tall is it?", "context": PASSAGE})
    assert response.status_code == 202
    job = response.json()
    assert response.headers["Location"] == job["urls"]["self"] == f"/v1/jobs/{job['id']}"
    assert int(response.headers["Retry-After"]) >= 1
    assert (job["status"], job["results"], job["finished_at"]) == ("queued", None, None)
    done = fleet.api.get(job["urls"]["self"], params={"wait": 30}).json()
    assert done["status"] == "succeeded"
    assert done["results"][0]["answer"]["text"].startswith("330")
    assert done["created_at"] <= done["started_at"] <= done["finished_at"]


def test_passage_of_twenty_thousand_words_is_read_to_its_last_sentence(fleet: Fleet) -> None:
    filler = "The committee met again in the spring and talked for hours about roads, bridges and the price of bread. "
    context = filler * 1060 + "The secret password of the lighthouse is Marigold Seven."
    assert len(context.split()) > 20_000
    with fleet.client() as client:
        result = client.ask("What is the secret password of the lighthouse?", context)
    assert result.answer is not None
    assert result.answer.text == "Marigold Seven"
    assert result.answer.start == context.index("Marigold")
    assert context[result.answer.start : result.answer.end] == result.answer.text
    assert result.windows > 80


@pytest.mark.parametrize(
    ("question", "context"),
    [
        ("Who flew to space?", "👩‍🚀 Valentina flew to space in 1963. 🎉🎉 東京 was quiet."),
        ("Where was the concert?", "The concert was in 東京 🗼, and everybody sang."),
        ("Who wrote the letter?", "Zoe\u0308 Muñoz wrote the letter – “Dear José …” – in İstanbul."),
    ],
)
def test_offsets_count_code_points_of_the_callers_own_string(fleet: Fleet, question: str, context: str) -> None:
    with fleet.client() as client:
        result = client.ask(question, context, top_k=3, no_answer=False)
    assert result.answer is not None
    for answer in result.answers:
        assert context[answer.start : answer.end] == answer.text


def test_no_answer_is_null_and_can_be_switched_off(fleet: Fleet) -> None:
    question = "Which goalkeeper saved the last penalty?"
    with fleet.client() as client:
        none = client.ask(question, PASSAGE)
        some = client.ask(question, PASSAGE, no_answer=False)
    assert none.answer is None
    assert none.no_answer_score is not None
    assert none.no_answer_score > 0.5
    assert some.answer is not None


def test_thousand_items_keep_all_cores_busy_and_come_back_in_order(fleet: Fleet) -> None:
    items = [
        Question(id=f"n{n}", question="What is the number?", context=f"The number is {n}. The rest is noise.")
        for n in range(1000)
    ]
    before = {name: core["items"] for name, core in fleet.states().items()}
    with fleet.client() as client:
        job = client.submit(items)
        results = list(client.iter_results(job.id))
        final = client.get(job.id)
    assert final.counts.succeeded == 1000
    assert final.results is None
    assert [result.id for result in results] == [f"n{n}" for n in range(1000)]
    right = sum(result.answer is not None and result.answer.text == str(n) for n, result in enumerate(results))
    assert right > 950

    def shares() -> list[int]:
        return [core["items"] - before[name] for name, core in fleet.states().items()]

    eventually(lambda: sum(shares()) >= 1000)  # heartbeats tell the counts
    assert min(shares()) > 1000 / len(before) / 2


def test_results_stream_as_lines_while_the_job_runs(fleet: Fleet) -> None:
    items = [{"question": "What is the number?", "context": f"The number is {n}."} for n in range(150)]
    with fleet.http() as http:
        job = http.post("/v1/jobs", json={"items": items}).json()
        lines = []
        with http.stream("GET", job["urls"]["results"], headers={"Accept": "application/x-ndjson"}) as response:
            assert response.headers["content-type"] == "application/x-ndjson"
            lines = [orjson.loads(line) for line in response.iter_lines() if line]
    assert [line["index"] for line in lines] == list(range(150))


def test_pages_join_up(fleet: Fleet) -> None:
    items = [{"question": "What is the number?", "context": f"The number is {n}."} for n in range(70)]
    with fleet.http() as http:
        job = http.post("/v1/jobs", json={"items": items}, headers={"Prefer": "wait=60"}).json()
        seen, cursor = [], None
        while True:
            params = {"limit": 32} | ({"after": cursor} if cursor else {})
            page = http.get(job["urls"]["results"], params=params).json()
            seen += [result["index"] for result in page["data"]]
            cursor = page["next"]
            if not page["has_more"]:
                break
    assert seen == list(range(70))
    assert cursor is None


def test_canceled_job_stays_canceled(fleet: Fleet) -> None:
    items = [
        {"id": f"c{n}", "question": "What is the number?", "context": "The number is 7. " * 200} for n in range(400)
    ]
    with fleet.http() as http:
        job = http.post("/v1/jobs", json={"items": items}).json()
        canceled = http.post(job["urls"]["cancel"]).json()
        assert canceled["status"] == "canceled"
        assert canceled["counts"]["canceled"] + canceled["counts"]["succeeded"] == 400
        assert http.post(job["urls"]["cancel"]).json()["finished_at"] == canceled["finished_at"]
        fleet.wait_whole()
        assert http.get(job["urls"]["self"]).json()["counts"] == canceled["counts"]
        last = http.get(job["urls"]["results"], params={"after": "399"}).json()["data"][-1]
    assert (last["id"], last["status"], last["answer"]) == ("c399", "canceled", None)


def test_javascript_slices_answers_by_the_offsets_the_service_sends(fleet: Fleet) -> None:
    items = [{"id": script, "question": q, "context": context} for script, (q, context) in PASSAGES.items()]
    body = {"items": items, "options": {"offsets": ["utf16", "bytes"], "no_answer": False, "top_k": 3}}
    job = fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"}).json()
    assert [result["id"] for result in job["results"]] == list(PASSAGES)
    cases = [[item["context"], result["answers"]] for item, result in zip(items, job["results"], strict=True)]
    slices = run_javascript(
        """cases => cases.map(([context, answers]) =>
        answers.map(answer => context.slice(...answer.offsets.utf16)))""",
        cases,
    )
    assert slices == [[answer["text"] for answer in answers] for _, answers in cases]
    for context, answers in cases:
        for answer in answers:
            assert context[answer["start"] : answer["end"]] == answer["text"] != ""
            start, end = answer["offsets"]["bytes"]
            assert context.encode()[start:end].decode() == answer["text"]


def test_offsets_in_other_units_are_sent_only_to_those_who_ask(fleet: Fleet) -> None:
    body = {"question": "When was the tower completed?", "context": PASSAGE}
    job = fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"}).json()
    assert set(job["results"][0]["answer"]) == {"text", "start", "end", "score"}
    with fleet.client() as client:
        result = client.ask(body["question"], PASSAGE, offsets=["utf16"])
    assert result.answer is not None
    assert result.answer.offsets is not None
    assert (result.answer.offsets.utf16, result.answer.offsets.bytes) == (
        (result.answer.start, result.answer.end),
        None,
    )


def test_document_of_a_caller_who_leaves_is_not_read_to_its_end(fleet: Fleet) -> None:
    filler = "The committee met again in the spring and talked for hours about roads, bridges and the price of bread. "
    body = {"question": "What is it about?", "context": filler * 16_000}

    def newest() -> dict:
        return next(iter(fleet.api.get("/v1/jobs", params={"limit": 1}).json()["data"]), {})

    def windows() -> float:
        lines = fleet.api.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith("corelane_batch_windows_total"))

    fleet.wait_counted()
    before, last = windows(), newest().get("id")
    address = urlsplit(fleet.url)
    with socket.create_connection((address.hostname, address.port), 60) as caller:
        caller.sendall(request("POST", "/v1/answers", body))
        eventually(lambda: newest().get("id") != last)
    job = newest()["id"]
    eventually(lambda: newest()["status"] == "canceled")
    fleet.wait_counted()
    assert newest()["id"] == job
    # It has over 1,200; what a core took in one batch before it heard is read.
    assert windows() - before < 600


def test_shared_passage_is_tokenized_once_by_a_core_however_many_items_ask(fleet: Fleet) -> None:
    passage = " ".join(f"Bridge {number} was opened in {1700 + number}." for number in range(1, 60))

    def count(what: str) -> float:
        lines = fleet.api.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(f"corelane_core_{what}_total"))

    fleet.wait_counted()
    items, tokenized = count("items"), count("contexts_read")
    with fleet.client() as client:
        asked = [{"question": f"When was bridge {number} opened?", "context_id": "p"} for number in range(1, 20)]
        job = client.submit(asked, contexts={"p": passage}, options={"no_answer": False})
        found = [result.answer for result in client.iter_results(job.id)]
    assert all(answer is not None and passage[answer.start : answer.end] == answer.text for answer in found)
    fleet.wait_counted()
    assert count("items") - items == 19
    assert 1 <= count("contexts_read") - tokenized <= fleet.cores
