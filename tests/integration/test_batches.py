"""Files and batches as OpenAI's own client drives them, unmodified; one question alone; the old pipeline's payload."""

import random
import time
from collections.abc import Iterator
from typing import Any

import openai
import orjson
import pytest
from openai import OpenAI

from tests.chaos.fleet import ChaosFleet
from tests.integration.conftest import Fleet, wait_for

TOWER = "The Eiffel Tower was completed in March 1889 and is 330 metres tall. Gustave Eiffel's company built it."
FINAL = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, question: str, context: str, **body: Any) -> bytes:
    body = {"question": question, "context": context} | body
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": body}) + b"\n"


def numbers(first: int, count: int, **body: Any) -> list[bytes]:
    context = "The number is {}. The rest is noise."
    return [line(f"n{n}", "What is the number?", context.format(n), **body) for n in range(first, first + count)]


def client_of(fleet: Fleet | ChaosFleet, key: str = "batches") -> OpenAI:
    return OpenAI(base_url=f"{fleet.url}/v1", api_key=key, max_retries=0)


def create(client: OpenAI, content: bytes, window: str = "24h", **more: Any) -> Any:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    given: Any = {"endpoint": "/v1/answers", "completion_window": window} | more
    return client.batches.create(input_file_id=file.id, **given)


def finished(client: OpenAI, batch: str, seconds: float = 60) -> Any:
    wait_for(lambda: client.batches.retrieve(batch).status in FINAL, seconds)
    return client.batches.retrieve(batch)


def lines_of(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [orjson.loads(each) for each in client.files.content(file).content.splitlines()]


@pytest.fixture(scope="module")
def empty_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosFleet]:
    """A fleet whose core answers nothing, in no time, and whose keeper comes back when it is killed."""
    settings = {"CORELANE_NULL_BATCH_S": "0", "CORELANE_FEED_TOKENS": "20000"}
    fleet = ChaosFleet(tmp_path_factory.mktemp("null-fleet"), 1, settings)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def test_stock_client_sends_5000_lines_of_which_10_are_bad(empty_fleet: ChaosFleet) -> None:
    content = numbers(0, 5000)
    for place in range(10):
        content[place * 500 + 7] = (b"{torn\n", b"\xff\n", line("n0", "?", "twice"), line("x", " ", "blank"))[place % 4]
    content[4507] = content[4000]
    with client_of(empty_fleet) as client:
        batch = create(client, b"".join(content), metadata={"run": "7"})
        assert (batch.object, batch.status) == ("batch", "validating")
        done = finished(client, batch.id)
        assert done.request_counts is not None
        assert (done.status, done.metadata) == ("completed", {"run": "7"})
        assert done.request_counts.to_dict() == {"total": 5000, "completed": 4990, "failed": 10}
        output, errors = lines_of(client, done.output_file_id), lines_of(client, done.error_file_id)
        assert [each["line"] for each in errors] == [place * 500 + 8 for place in range(10)]
        assert len({each["custom_id"] for each in output}) == len(output) == 4990
        assert [each["line"] for each in output] == sorted(each["line"] for each in output)
        assert [each.id for each in client.batches.list(limit=1)][:1] == [batch.id]
        assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
        for each in client.files.list():
            assert client.files.delete(each.id).deleted
        assert list(client.files.list()) == []


@pytest.mark.chaos
def test_keeper_killed_again_and_again_answers_each_line_once(empty_fleet: ChaosFleet) -> None:
    keeper, killed = empty_fleet.parts["keeper"], set[int]()
    with client_of(empty_fleet, "chaos") as client:
        made = [create(client, b"".join(numbers(0, 3000)) + b"bad\n").id for _ in range(2)]
        for _ in range(2):
            killed.add(keeper.pid)
            keeper.end()
            wait_for(lambda: keeper.pid not in killed)
            time.sleep(random.uniform(1, 2))
        for batch in made:
            done = finished(client, batch, 90)
            assert done.request_counts.to_dict() == {"total": 3001, "completed": 3000, "failed": 1}
            output = lines_of(client, done.output_file_id)
            assert [each["custom_id"] for each in output] == [f"n{n}" for n in range(3000)]


def test_answers_are_right_under_each_lines_own_options(fleet: Fleet) -> None:
    content = [
        *numbers(0, 40),
        line("when", "When was the tower completed?", TOWER, options={"offsets": ["bytes"]}),
        line("nobody", "Who?", TOWER, model="nobody"),
    ]
    with client_of(fleet) as client:
        batch = create(client, b"".join(content))
        done = finished(client, batch.id)
        output = {each["custom_id"]: each["response"]["body"] for each in lines_of(client, done.output_file_id)}
        [refused] = lines_of(client, done.error_file_id)
    assert done.status == "completed"
    right = [output[f"n{n}"]["answer"] and output[f"n{n}"]["answer"]["text"] == str(n) for n in range(40)]
    assert sum(map(bool, right)) > 36
    when = output["when"]["answer"]
    assert (when["text"], when["offsets"]["bytes"]) == ("March 1889", [when["start"], when["end"]])
    assert (refused["custom_id"], refused["error"]["code"]) == ("nobody", "unknown_model")


def test_canceled_batch_ends_with_every_line_accounted_for(fleet: Fleet) -> None:
    with client_of(fleet) as client:
        batch = create(client, b"".join(numbers(0, 3000)))
        wait_for(lambda: client.batches.retrieve(batch.id).status == "in_progress")
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        done = finished(client, batch.id)
        assert done.status == "cancelled"
        found = [lines_of(client, file) for file in (done.output_file_id, done.error_file_id) if file is not None]
    assert sorted(each["line"] for part in found for each in part) == list(range(1, 3001))


def test_clients_of_openai_are_told_what_is_wrong_in_their_own_form(fleet: Fleet) -> None:
    with client_of(fleet) as client, client_of(fleet, "somebody else") as other:
        file = client.files.create(file=("in.jsonl", b"{}\n"), purpose="batch")
        with pytest.raises(openai.NotFoundError, match="there is no file") as caught:
            other.files.retrieve(file.id)
        assert caught.value.code == "not_found"
        with pytest.raises(openai.UnprocessableEntityError, match="purpose"):
            client.files.create(file=("in.jsonl", b"{}\n"), purpose="fine-tune")
        with pytest.raises(openai.UnprocessableEntityError, match="24h") as invalid:
            create(client, b"{}\n", window="tomorrow")
        assert (invalid.value.type, invalid.value.param) == ("invalid_request_error", "completion_window")
        with pytest.raises(openai.UnprocessableEntityError, match="endpoint"):
            create(client, b"{}\n", endpoint="/v1/chat/completions")
        with pytest.raises(openai.NotFoundError):
            other.batches.create(input_file_id=file.id, endpoint="/v1/answers", completion_window="24h")
        failed = finished(client, create(client, b"{}\n").id)
        assert failed.errors is not None
        assert (failed.status, failed.errors.data[0].line) == ("failed", 1)
        with pytest.raises(openai.NotFoundError):
            other.batches.retrieve(failed.id)


def test_one_question_is_answered_without_a_job_to_look_after(fleet: Fleet) -> None:
    asked = {"id": "mine", "question": "How tall is the tower?", "context": TOWER, "options": {"offsets": ["bytes"]}}
    answered = fleet.api.post("/v1/answers", json=asked)
    result = answered.json()
    assert answered.status_code == 200
    assert (result["id"], result["index"], result["answer"]["text"]) == ("mine", 0, "330 metres")
    assert result["answer"]["offsets"]["bytes"]
    unfinished = fleet.api.post("/v1/answers", json=asked | {"context": TOWER * 2000}, params={"wait": 0})
    assert unfinished.status_code == 202
    assert unfinished.headers["location"] == unfinished.json()["urls"]["self"]
    fleet.api.post(unfinished.json()["urls"]["cancel"])
    refused = fleet.api.post("/v1/answers", json=asked | {"model": "nobody"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unknown_model")


def test_old_pipelines_payload_is_answered_as_it_was(fleet: Fleet) -> None:
    path = "/v1/hf/question-answering"
    one = {"question": "When was the tower completed?", "context": TOWER}
    found = fleet.api.post(path, json={"inputs": one}).json()
    assert set(found) == {"score", "start", "end", "answer"}
    assert (found["answer"], TOWER[found["start"] : found["end"]]) == ("March 1889", "March 1889")
    none = {"question": "What does a loaf of bread cost in Lisbon?", "context": TOWER}
    parameters = {"handle_impossible_answer": True, "max_answer_len": 20, "doc_stride": 64}
    both = fleet.api.post(path, json={"inputs": [one, none], "parameters": parameters}).json()
    assert [each["answer"] for each in both] == ["March 1889", ""]
    assert (both[1]["start"], both[1]["end"]) == (0, 0)
    assert fleet.api.post(path, json={"inputs": none}).json()["answer"] != ""
    several = fleet.api.post(path, json={"inputs": one, "parameters": parameters | {"top_k": 20}}).json()
    assert [each["answer"] for each in several][:1] == ["March 1889"]
    assert "" in [each["answer"] for each in several][1:]
    assert [each["score"] for each in several] == sorted((each["score"] for each in several), reverse=True)
    for wrong, said in (
        ({"inputs": one, "parameters": {"max_seq_len": 384}}, "leave `max_seq_len` out"),
        ({"inputs": one, "parameters": {"color": 1}}, "`color` is not known here"),
        ({"inputs": []}, "is empty"),
        ({"inputs": {"question": " ", "context": "x"}}, "white space"),
        ({"inputs": {"question": "word " * 900, "context": "x"}}, "question"),
    ):
        refused = fleet.api.post(path, json=wrong)
        assert refused.status_code == 422, refused.text
        assert said in refused.json()["detail"]
