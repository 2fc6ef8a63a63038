"""Files and batches as OpenAI's own client drives them, unmodified; the old pipeline's payload."""

import openai
import pytest
from standardwebhooks.webhooks import Webhook

from tests.tools.batches import client_of, create, finished, line, lines_of, numbers
from tests.tools.fleet import WEBHOOK_SECRET, Fleet
from tests.tools.receivers import receiver
from tests.tools.waiting import eventually

TOWER = "The Eiffel Tower was completed in March 1889 and is 330 metres tall. Gustave Eiffel's company built it."


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
        eventually(lambda: client.batches.retrieve(batch.id).status == "in_progress")
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        done = finished(client, batch.id)
        assert done.status == "cancelled"
        found = [lines_of(client, file) for file in (done.output_file_id, done.error_file_id) if file is not None]
    assert sorted(each["line"] for part in found for each in part) == list(range(1, 3001))


def test_end_is_posted_as_openais_client_unwraps_it(fleet: Fleet) -> None:
    with client_of(fleet) as client, receiver() as found:
        batch = create(client, b"".join(numbers(0, 3)), extra_body={"webhook": {"url": found.url}})
        eventually(lambda: len(found.posts) > 0)
        [post] = found.posts
        event = client.webhooks.unwrap(post.body, post.headers, secret=WEBHOOK_SECRET)
        assert (event.type, event.data.id) == ("batch.completed", batch.id)
        shown = Webhook(WEBHOOK_SECRET).verify(post.body, post.headers)["data"]
        assert shown == fleet.api.get(f"/v1/batches/{batch.id}").json()
        [delivery] = fleet.api.get(f"/v1/batches/{batch.id}/deliveries").json()["data"]
    assert (delivery["id"], delivery["subject"]) == (post.headers["webhook-id"], batch.id)


def test_clients_of_openai_are_told_what_is_wrong_in_their_own_form(fleet: Fleet) -> None:
    with client_of(fleet) as client:
        client.files.create(file=("in.jsonl", b"{}\n"), purpose="batch")
        with pytest.raises(openai.NotFoundError, match="there is no file") as caught:
            client.files.retrieve("file-nobody")
        assert caught.value.code == "not_found"
        with pytest.raises(openai.UnprocessableEntityError, match="purpose"):
            client.files.create(file=("in.jsonl", b"{}\n"), purpose="fine-tune")
        with pytest.raises(openai.UnprocessableEntityError, match="24h") as invalid:
            create(client, b"{}\n", window="tomorrow")
        assert (invalid.value.type, invalid.value.param) == ("invalid_request_error", "completion_window")
        with pytest.raises(openai.UnprocessableEntityError, match="endpoint"):
            create(client, b"{}\n", endpoint="/v1/chat/completions")
        with pytest.raises(openai.NotFoundError):
            client.batches.create(input_file_id="file-nobody", endpoint="/v1/answers", completion_window="24h")
        failed = finished(client, create(client, b"{}\n").id)
        assert failed.errors is not None
        assert (failed.status, failed.errors.data[0].line) == ("failed", 1)
        with pytest.raises(openai.NotFoundError):
            client.batches.retrieve("batch_nobody")


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
    short = {"max_seq_len": 64, "max_question_len": 8, "doc_stride": 16}
    assert fleet.api.post(path, json={"inputs": one, "parameters": short}).json()["answer"] == "March 1889"
    long = one | {"context": TOWER * 100}
    for wrong, said in (
        ({"inputs": one, "parameters": {"padding": True}}, "leave `padding` out"),
        ({"inputs": one, "parameters": {"max_seq_len": 4096}}, "`max_seq_len` is 4,096, and this model reads"),
        ({"inputs": long, "parameters": {"truncation": "error"}}, "or leave `truncation` at `windows`"),
        ({"inputs": long, "parameters": {"max_windows": 2}}, "and 2 are read of one item"),
        ({"inputs": one, "parameters": {"color": 1}}, "`color` is not known here"),
        ({"inputs": []}, "is empty"),
        ({"inputs": {"question": " ", "context": "x"}}, "white space"),
        ({"inputs": {"question": "word " * 900, "context": "x"}}, "question"),
    ):
        refused = fleet.api.post(path, json=wrong)
        assert refused.status_code == 422, refused.text
        assert said in refused.json()["detail"]
