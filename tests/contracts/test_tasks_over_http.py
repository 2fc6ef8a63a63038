"""What jobs promise of every task, over HTTP: with a real server, a real core, and results that are told."""

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pytest
import redis
from openai.types import Model

from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.null import SUMMARY
from corelane.plugins.files.batches.checking import Sorter
from corelane.settings import Settings
from corelane.store.fleet import Announcer
from corelane.submitting.ndjson import InputLine
from corelane.tasks.registry import TASKS
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import VERSION, announce
from tests.tools.told_core import FORMED, TOO_LONG, telling

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(params=FORMED)
def task(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def told(settings: Settings, raw: redis.Redis, bell: str, task: str) -> Iterator[Service]:
    for service in run_service(settings.model_copy(update={"console": False}), raw, bell):
        announce(service.bench.settings, "a/0", VERSION, [], SUMMARY | {"name": "tiny"})
        with telling(service.bench, [task], task):
            yield service


def ask(told: Service, wait: int = 20, **body: Any) -> dict[str, Any]:
    response = told.http.post("/v1/jobs", json=body, params={"wait": wait})
    assert response.status_code in (200, 202), response.text
    found: dict[str, Any] = response.json()
    return found


def items(task: str, count: int = 3) -> list[dict[str, Any]]:
    """Return items, of which the first two are equal."""
    first = dict(TASKS[task].example)
    name = next(name for name, value in first.items() if isinstance(value, str))
    return [{**first, name: first[name] + " more" * max(0, number - 1)} for number in range(count)]


def test_job_has_a_result_of_its_task_for_each_item_in_order(told: Service, task: str) -> None:
    job = ask(told, items=[{"id": f"i{n}", **each} for n, each in enumerate(items(task, 5))])
    assert (job["task"], job["status"], job["counts"]["succeeded"]) == (
        task,
        "succeeded",
        5,
    )
    assert [(each["index"], each["id"]) for each in job["results"]] == [(n, f"i{n}") for n in range(5)]
    assert all(TASKS[task].result.mark in each for each in job["results"])
    assert job["results"] == told.http.get(f"/v1/jobs/{job['id']}/results").json()["data"]
    assert job["usage"]["items"] == 5


def test_example_of_a_body_in_the_document_is_answered(told: Service, task: str) -> None:
    for example in TASKS[task].job_examples.values():
        body = {name: value for name, value in example["value"].items() if name != "webhook"}
        assert ask(told, **body)["status"] == "succeeded"


def test_lines_are_one_job_of_the_task(told: Service, task: str) -> None:
    sent = [{"metadata": {"k": "v"}}, *items(task)]
    content = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in sent)
    response = told.http.post("/v1/jobs", content=content, headers=NDJSON)
    assert response.status_code == 202, response.text
    job = response.json()["id"]
    assert told.http.get(f"/v1/jobs/{job}", params={"wait": 20}).json()["status"] == "succeeded"
    found = [
        orjson.loads(each)
        for each in told.http.get(
            f"/v1/jobs/{job}/results", headers={"Accept": "application/x-ndjson"}
        ).content.splitlines()
    ]
    assert [each["index"] for each in found] == [0, 1, 2]
    refused = told.http.post("/v1/jobs", content=orjson.dumps({"wrong": 1, **items(task)[0]}), headers=NDJSON)
    assert refused.status_code == 422
    assert "wrong: there is no such field (there are `id`, " in refused.json()["detail"]
    assert f"; this model takes items for {task}, such as" in refused.json()["detail"]


def test_item_of_another_form_is_refused_with_the_form_of_this_task(told: Service, task: str) -> None:
    refused = told.http.post("/v1/jobs", json={"items": [items(task)[0], {"colour": 1}]})
    assert refused.status_code == 422
    detail = refused.json()["detail"]
    assert f"this model takes items for {task}, such as {orjson.dumps(dict(TASKS[task].example)).decode()}" in detail
    job = ask(told, items=[items(task)[0], {"id": "bad", "colour": 1}], invalid_items="fail")
    assert [each["status"] for each in job["results"]] == ["succeeded", "failed"]
    assert f"items for {task}" in job["results"][1]["error"]["detail"]


def spoilt(whole: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names of fields, each with an object that lacks it or has a value there that it never takes."""
    for name in names:
        rest = {each: value for each, value in whole.items() if each != name}
        wrongs: tuple[Any, ...] = (None, 7, [], {})
        for wrong in wrongs:
            yield name, {**rest, name: wrong}
        yield name, rest


def test_required_field_of_another_type_is_named_at_every_door(told: Service, task: str) -> None:
    example = {name: value for name, value in TASKS[task].example.items() if name != "labels"}
    fails = {"invalid_items": "fail"}
    for name, item in spoilt(example, example):
        line, head = orjson.dumps(item | {"id": "a"}), orjson.dumps(fails) + b"\n"
        sent: list[dict[str, Any]] = [
            {"json": item},
            {"json": {"items": [example, item]}},
            {"content": line, "headers": NDJSON},
        ]
        refusals = [told.http.post("/v1/jobs", **each) for each in sent]
        assert [each.status_code for each in refusals] == [422] * 3, (name, item)
        details = [each.json()["detail"] for each in refusals]
        sent = [{"json": item | {"id": "a"} | fails}, {"json": {"items": [item]} | fails}]
        for each in (*sent, {"content": head + line, "headers": NDJSON}):
            made = told.http.post("/v1/jobs", **each, params={"wait": 20}).json()
            found = told.http.get(f"/v1/jobs/{made['id']}", params={"wait": 20}).json()
            details.append(found["results"][0]["error"]["detail"])
        assert [each for each in details if name not in each.partition(";")[0]] == []
    for dialect in TASKS[task].dialects:
        needed = [name for name, field in dialect.body.model_fields.items() if field.is_required()]
        for name, body in spoilt(dialect.example, needed):
            refused = told.http.post(dialect.path, json=body)
            assert (refused.status_code, name in refused.json()["detail"]) == (422, True), (dialect.path, body)
            if dialect.line is not None:
                value = {"custom_id": "a", "method": "POST", "url": dialect.path, "body": body}
                sorter = Sorter(told.bench.settings, dialect.path, lambda _: io.BytesIO())
                found = sorter.sort(InputLine(1, orjson.dumps(value)))
                assert name in (found.error or ("", ""))[1].partition(";")[0], (dialect.path, body)


def test_two_items_with_one_id_are_refused_at_every_door(told: Service, task: str) -> None:
    same = [{**TASKS[task].example, "id": each} for each in ("a", "b", "a")]
    lines = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in same)
    doors: list[tuple[dict[str, Any], tuple[str, str]]] = [
        ({"json": {"items": same}}, ("item 2", "item 0")),
        ({"content": lines, "headers": NDJSON}, ("line 3", "line 1")),
    ]
    for sent, places in doors:
        refused = told.http.post("/v1/jobs", **sent)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
        assert f"{places[0]} has the id 'a' of {places[1]}: give each item an id of its own" in refused.json()["detail"]
    job = ask(told, items=same, invalid_items="fail")
    assert [each["status"] for each in job["results"]] == ["succeeded", "succeeded", "failed"]
    assert "has the id 'a' of item 0" in job["results"][2]["error"]["detail"]
    assert ask(told, items=[{**TASKS[task].example}] * 2)["status"] == "succeeded"


@pytest.mark.parametrize("task", [name for name in FORMED if "text" in TASKS[name].example])
def test_item_that_fails_leaves_its_neighbours_alone_and_only_it_is_retried(told: Service, task: str) -> None:
    job = ask(told, items=[items(task)[0], {**items(task)[0], "text": TOO_LONG}])
    assert [each["status"] for each in job["results"]] == ["succeeded", "failed"]
    assert job["results"][1]["error"]["code"] == "text_too_long"
    retried = told.http.post(f"/v1/jobs/{job['id']}/retry")
    assert (retried.status_code, retried.json()["code"]) == (409, "nothing_to_retry")


def test_canceled_items_are_retried_as_they_were(told: Service, task: str) -> None:
    assert told.http.put(f"/v1/pauses/model/{task}@0").is_success
    job = ask(told, wait=0, items=items(task))
    assert told.http.post(f"/v1/jobs/{job['id']}/cancel").json()["status"] == "canceled"
    again = told.http.post(f"/v1/jobs/{job['id']}/retry").json()["id"]
    assert told.http.delete(f"/v1/pauses/model/{task}@0").is_success
    found = told.http.get(f"/v1/jobs/{again}", params={"wait": 20}).json()
    assert (found["task"], found["status"], len(found["results"])) == (task, "succeeded", 3)


def test_event_at_the_end_has_the_results(told: Service, task: str) -> None:
    job = ask(told, items=items(task))
    stream = told.http.get(f"/v1/jobs/{job['id']}/events").text
    assert "event: job.completed" in stream
    assert f'"{TASKS[task].result.mark}"' in stream


def test_task_and_its_model_are_listed(told: Service, task: str) -> None:
    found = {each["name"]: each for each in told.http.get("/v1/tasks").json()["data"]}
    assert set(found) == set(TASKS)
    mine = found[task]
    assert f"{task}@0" in mine["models"]
    assert mine["example"] == orjson.loads(orjson.dumps(dict(TASKS[task].example)))
    assert set(mine["item"]["required"]) <= set(mine["example"])
    assert TASKS[task].result.mark in mine["result"]["properties"]
    [model] = [each for each in told.http.get("/v1/models").json()["data"] if each["id"] == f"{task}@0"]
    assert model["task"] == task
    shown = Model.model_validate(model)
    assert (shown.id, shown.created, shown.owned_by) == (f"{task}@0", 0, "corelane")


@pytest.mark.parametrize("task", [name for name in FORMED if name != DEFAULT_TASK])
def test_alias_does_not_mean_versions_of_several_tasks(told: Service, task: str) -> None:
    weights = {f"{task}@0": 1.0, "tiny@1": 1.0}
    refused = told.http.put("/v1/aliases/mixed", json={"weights": weights})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert f"{task}@0 is for {task}, tiny@1 is for question-answering" in refused.json()["detail"]
    assert told.http.put("/v1/aliases/mixed", json={"weights": weights | {"tiny@1": 0.0}}).status_code == 200


@pytest.mark.parametrize("task", [name for name in FORMED if name != DEFAULT_TASK])
def test_alias_that_moves_to_another_task_takes_items_of_that_task_at_once(told: Service, task: str) -> None:
    questions = [dict(TASKS[DEFAULT_TASK].example)]
    for version, given in (("tiny@1", questions), (f"{task}@0", items(task)), ("tiny@1", questions)):
        means = {"version": version.replace("tiny@1", "tiny")}
        assert told.http.put("/v1/aliases/moved", json=means).status_code == 200
        taken = told.http.post("/v1/jobs", json={"model": "moved", "items": given})
        assert (taken.status_code, taken.json()["model"]) == (202, version)
    twice = told.http.put("/v1/aliases/moved", json={"weights": {"tiny": 1, "tiny@1": 2}})
    assert twice.json()["weights"] == {"tiny@1": 3}


@pytest.mark.parametrize("task", [name for name in FORMED if name != DEFAULT_TASK])
def test_dialect_without_a_model_asks_one_of_its_task_wherever_the_default_moves(told: Service, task: str) -> None:
    Announcer(told.bench.settings, "a/0").beat({"state": "idle"}, ["tiny@1"], [])
    for version in ("tiny@1", f"{task}@0", "tiny@1"):
        body = {"inputs": {**TASKS[DEFAULT_TASK].example, "question": f"Who wrote {version}?"}}
        assert told.http.put("/v1/aliases/default", json={"weights": {version: 1.0}}).status_code == 200
        response = told.http.post("/v1/hf/question-answering", json=body, headers={"Prefer": "wait=0"})
        # Nothing runs `tiny@1`, so its answer is late; another task would refuse the body.
        assert response.status_code == 200 or response.json()["code"] == "not_in_time", response.text
