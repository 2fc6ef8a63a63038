"""Requests that are not as they should be are told so in plain sentences, which name the place and what to do."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.engine.null import SUMMARY
from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, announce

OK = {"question": "Who?", "context": "Ada."}

SENTENCES: dict[str, tuple[str, Any, str, str]] = {
    "unknown field": (
        "answers",
        {**OK, "contxt": "c"},
        "contxt",
        "there is no such field, did you mean `context`? (there are `id`, `question`, `context`, `model`, `options`, "
        "`priority`)",
    ),
    "unknown field of a part": (
        "batches",
        {
            "input_file_id": "file_1",
            "endpoint": "/v1/answers",
            "completion_window": "24h",
            "output_expires_after": {"anchor": "created_at", "seconds": 4000, "second": 4000},
        },
        "output_expires_after.second",
        "there is no such field, did you mean `seconds`? (there are `anchor`, `seconds`)",
    ),
    "missing field": ("answers", {"context": "Ada"}, "question", "this is required"),
    "no context": ("answers", {"question": "Who?"}, "context", "this is required"),
    "empty text": ("answers", {**OK, "question": ""}, "question", "at least 1 character is wanted"),
    "no items": ("jobs", {"items": []}, "items", "it has 0 entries, and at least 1 entry must be there"),
    "not a list": ("jobs", {"items": 3}, "items", "a list is wanted"),
    "not an object": ("jobs", [1], "body", "a JSON object is wanted"),
    "a rule of ours": (
        "jobs",
        {**OK, "items": [OK]},
        "body",
        "give either `items` or one item's `question` in place, not both",
    ),
    "bound": ("jobs", {**OK, "options": {"top_k": 0}}, "options.top_k", "it must be at least 1"),
    "choice": ("jobs", {**OK, "priority": "soon"}, "priority", "it must be 'high', 'normal' or 'low'"),
    "one input": ("hf/question-answering", {"inputs": {**OK, "context": 3}}, "inputs.context", "a text is wanted"),
    "several inputs": ("hf/question-answering", {"inputs": [OK, {}]}, "inputs.1.question", "this is required"),
    "option of another name": (
        "jobs",
        {**OK, "options": {"max_answer_len": 3}},
        "options",
        "there is no field `max_answer_len` here: it is `max_answer_tokens`",
    ),
    "option beside the options": (
        "jobs",
        {**OK, "top_k": 3},
        "body",
        "there is no field `top_k` here: it belongs into `options`",
    ),
    "both": ("answers", {**OK, "topk": 3}, "body", "there is no field `topk` here: it is `top_k`, in `options`"),
    "parameter beside the parameters": (
        "hf/question-answering",
        {"inputs": OK, "max_answer_len": 3},
        "body",
        "there is no field `max_answer_len` here: it belongs into `parameters`",
    ),
    "no inputs": ("hf/question-answering", {"inputs": 3}, "inputs", "a JSON object is wanted"),
}


@pytest.mark.parametrize(("route", "body", "at", "detail"), SENTENCES.values(), ids=SENTENCES.keys())
def test_what_is_wrong_with_a_body_is_said_in_a_plain_sentence(
    api: TestClient, route: str, body: Any, at: str, detail: str
) -> None:
    problem = api.post(f"/v1/{route}", json=body).json()
    assert (problem["status"], problem["code"]) == (422, "invalid_input")
    assert problem["errors"][0] == {"at": at, "detail": detail}
    assert problem["detail"].startswith(f"{at}: {detail}")


def test_unknown_field_of_a_job_is_refused_with_the_known_ones_and_an_example(api: TestClient) -> None:
    detail = api.post("/v1/jobs", json={**OK, "contxt": "c"}).json()["detail"]
    assert detail.startswith("contxt: there is no such field, did you mean `context` or `contexts`? (there are ")
    assert "; this model takes items for question-answering, such as {" in detail
    detail = api.post("/v1/jobs", json={"items": [{**OK, "contxt": "c"}]}).json()["detail"]
    assert "`context_id`? (there are `id`, `question`, `context`, `context_id`); this model takes items" in detail
    detail = api.post("/v1/jobs", json={**OK, "options": {"top_q": 1}}).json()["detail"]
    assert detail.startswith("options.top_q: there is no such field, did you mean `top_k`? (there are `top_k`, ")
    assert "such as" not in detail


def test_misspelt_model_is_what_is_wrong_whatever_form_its_items_have(service: Service) -> None:
    announce(service.bench.settings, "a/0", VERSION, [], SUMMARY | {"name": "tiny"})
    said = "there is no model 'tiny@2', did you mean `tiny@1`"
    for body in ({"text": "x"}, {"items": [{"text": "x"}]}, OK):
        refused = service.http.post("/v1/jobs", json={"model": "tiny@2", **body}).json()
        assert (refused["code"], refused["detail"].startswith(said)) == ("unknown_model", True)
    for lines in (b'{"model": "tiny@2"}\n{"text": "x"}', b'{"model": "tiny@2", "inputs": 1}\n{"text": "x"}'):
        refused = service.http.post("/v1/jobs", content=lines, headers={"Content-Type": "application/x-ndjson"}).json()
        assert (refused["code"], refused["detail"].startswith(said)) == ("unknown_model", True)
    dialect = service.http.post("/v1/answers", json={"model": "tiny@2", **OK}).json()
    assert (dialect["code"], dialect["detail"].startswith(said)) == ("unknown_model", True)
    assert service.http.get("/v1/models/tiny@2").json()["detail"].startswith(said)
    for command in (["run", "tiny@2", "x"], ["ask", "Who?", "--context", "Ada wrote it.", "--model", "tiny@2"]):
        run = CliRunner().invoke(make_cli(), [*command, "--url", service.url])
        assert (run.exit_code, said in " ".join(run.output.split())) == (1, True), run.output


def test_model_is_unloaded_by_the_name_of_its_only_version(service: Service) -> None:
    address = "/v1/cores/all/models"
    announce(service.bench.settings, "a/0", VERSION, [], SUMMARY | {"name": "tiny"})
    refused = service.http.delete(f"{address}/tinny").json()
    assert (refused["code"], "did you mean `tiny`" in refused["detail"]) == ("unknown_model", True)
    for request in (("POST", f"{address}/tiny/reload"), ("DELETE", f"{address}/tiny?force=true")):
        assert service.http.request(*request).json()["version"] == VERSION
    announce(service.bench.settings, "a/0", "tiny@2", [], SUMMARY | {"name": "tiny"})
    assert f"name one of {VERSION}, tiny@2" in service.http.delete(f"{address}/tiny").json()["detail"]


def test_bad_line_is_said_to_be_so_in_a_plain_sentence_too(service: Service) -> None:
    line = b'{"question": "Who?", "context": "Ada.", "top_k": 2}\n'
    problem = service.http.post("/v1/jobs", content=line, headers={"Content-Type": "application/x-ndjson"}).json()
    assert problem["detail"].startswith(
        "line 1: top_k: there is no such field (there are `id`, `question`, `context`, "
    )
    assert problem["detail"].endswith('"context":"The tower is 330 metres tall."}')


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "nothing says what the body is"), ("text/csv", "`text/csv`"), ("text/json", "`text/json`")],
)
@pytest.mark.parametrize("route", ["jobs", "answers", "hf/question-answering", "batches"])
def test_body_that_is_not_said_to_be_json_is_refused_with_the_header_to_send(
    api: TestClient, route: str, given: str | None, said: str
) -> None:
    response = api.post(f"/v1/{route}", content=b"{}", headers={"Content-Type": given} if given else {})
    assert (response.status_code, response.json()["code"]) == (415, "bad_request")
    assert said in response.json()["detail"]
    assert "`Content-Type: application/json`" in response.json()["detail"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_json_by_any_of_its_names_is_read(api: TestClient, kind: str) -> None:
    assert api.post("/v1/jobs", content=b"{}", headers={"Content-Type": kind}).status_code == 422


@pytest.mark.parametrize(
    ("address", "at", "said"),
    [
        ("jobs?statu=failed", "query.statu", "did you mean `status`?"),
        ("jobs?limit=5&colour=red", "query.colour", "`limit`, `after`, `id`, `q`"),
        ("jobs/job_1?waite=5", "query.waite", "did you mean `wait`?"),
        ("cores?all=1", "query.all", "there is no such parameter (there are none)"),
    ],
)
def test_unknown_query_parameter_is_refused_with_the_nearest_one(
    api: TestClient, address: str, at: str, said: str
) -> None:
    problem = api.get(f"/v1/{address}").json()
    assert (problem["status"], problem["code"], problem["errors"][0]["at"]) == (422, "invalid_input", at)
    assert said in problem["detail"]


def test_time_that_is_none_is_refused_with_an_example(api: TestClient) -> None:
    problem = api.get("/v1/jobs?created_after=yesterday").json()
    assert problem["errors"] == [
        {
            "at": "query.created_after",
            "detail": "a time is wanted: RFC 3339 as 2026-07-01T12:00:00Z, or seconds since 1970",
        }
    ]


def test_probes_and_metrics_take_whatever_their_callers_add(api: TestClient) -> None:
    assert api.get("/livez?probe=1").status_code == 200
    assert api.get("/metrics?format=text").status_code == 200


def test_front_door_leads_to_the_page_about_the_api(api: TestClient) -> None:
    response = api.get("/", follow_redirects=False)
    assert (response.status_code, response.headers["Location"]) == (307, "docs")


def test_model_that_is_not_there_is_told_to_openai_s_client_in_its_form(api: TestClient) -> None:
    response = api.get("/v1/models/default")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == response.json()["detail"]
    assert "'default'" in response.json()["detail"]
