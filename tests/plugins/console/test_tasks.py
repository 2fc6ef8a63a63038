"""The Ask page and a job's page for each task: the form, an item, its result, and that none of it is markup."""

import csv
import io
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from struct import pack
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from corelane.plugins.console.pages.ask import ITEM, fields_for, read_item
from corelane.plugins.console.pages.fields import fields_of, values_of, written
from corelane.plugins.console.pages.render import fragment
from corelane.store import keys
from corelane.store.dispatch import Claim, SliceResults
from corelane.store.fleet import Announcer
from corelane.tasks.registry import TASKS
from tests.corelane.store_bench import Bench, LoneCore, announce
from tests.plugins.console.conftest import SUMMARY, text_of
from tests.tools.told_core import FORMED
from tests.tools.waiting import eventually

#: What would run if it were not escaped.
XSS = "\"'><script>alert(1)</script>"

#: An item of each task with markup in each text, the output of a model, and words that both pages show.
SAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "question-answering": (
        {"question": XSS, "context": f"It is {XSS}."},
        {"answer": (answer := {"text": XSS, "start": 6, "end": 6 + len(XSS), "score": 0.75}), "answers": [answer]},
        [XSS, "75 %"],
    ),
    "text-classification": (
        {"text": XSS, "text_pair": XSS},
        {"labels": [{"label": XSS, "score": 0.75}, {"label": "neutral", "score": 0.25}]},
        [XSS, "0.7500", "neutral"],
    ),
    "zero-shot-classification": (
        {"text": XSS, "labels": [XSS, "price"]},
        {"labels": [{"label": XSS, "score": 0.75}, {"label": "price", "score": 0.25}]},
        [XSS, "0.7500", "price"],
    ),
    "token-classification": (
        {"text": f"It is {XSS}."},
        {"entities": [{"label": XSS, "text": XSS, "start": 6, "end": 6 + len(XSS), "score": 0.75}]},
        [XSS, "0.7500", "It is"],
    ),
    "feature-extraction": (
        {"text": XSS},
        {"embedding": [3.0, -4.0], "tokens": 4},
        ["2 numbers", "length 5", "4 tokens"],
    ),
    "text-ranking": (
        {"query": XSS, "texts": ["first", XSS]},
        {"ranking": [{"index": 1, "score": 0.75}, {"index": 0, "score": 0.25}]},
        [XSS, "0.7500", "first"],
    ),
}

#: What a core says of itself.
BEAT = dict.fromkeys(("pid", "cpus", "busy", "items"), "0") | dict.fromkeys(("versions", "reasons"), "[]")
BEAT |= {"state": "idle", "node": "core-0@test", "queue": "corelane.a/0"}

parametrized = pytest.mark.parametrize("task", FORMED)


def version_of(bench: Bench, task: str) -> str:
    """Have the core hold a version of a task."""
    version = f"{task}@1"
    announce(bench.settings, "a/0", version)
    Announcer(bench.settings, "a/0").beat(BEAT, [version], [], None)
    bench.raw.hset(keys.MODELS, version, orjson.dumps(SUMMARY | {"name": task, "task": task}))
    return version


def commit(core: LoneCore, version: str, output: dict[str, Any], status: str = "succeeded") -> None:
    """Do the only item that waits."""
    claim = core.claim([version], linger=False)
    assert claim is not None
    finish(core, claim, output, status)


def finish(core: LoneCore, claim: Claim, output: dict[str, Any], status: str = "succeeded") -> None:
    """Commit the result of the only item of a claim."""
    [(ref, _)] = claim.refs
    result = {"index": 0, "id": XSS, "status": status, "windows": 1, **output}
    core.commit(claim.lease, [SliceResults(ref, [result])])


def form_of(item: dict[str, Any]) -> dict[str, str]:
    """Return an item as a form has it."""
    return {ITEM + name: written(value) for name, value in item.items()}


@parametrized
def test_form_is_that_of_the_model_s_task(console: TestClient, bench: Bench, core: LoneCore, task: str) -> None:
    version = version_of(bench, task)
    page = console.get("/console/ask", params={"model": version}).text
    # The form has one item, so no texts that items share.
    for each in fields_for(TASKS[task])[0]:
        assert each.key == "context_id" or f'name="{each.name}"' in page
    assert f'<option value="{version}" data-task="{task}" selected>' in page
    sample = console.get("/console/ask", params={"model": version, "sample": "example"}).text
    assert task == "question-answering" or written(TASKS[task].example.get("text", "")) in sample
    given = {"model": version} | form_of(dict.fromkeys(TASKS[task].item.model_fields, XSS))
    filled = console.get("/console/ask", params=given)
    assert_shown(filled.text, [])
    assert "&lt;script&gt;" in filled.text


@parametrized
def test_form_has_what_was_given(task: str) -> None:
    item = SAMPLES[task][0]
    form = form_of(item)
    assert read_item(TASKS[task], "default", form) == (item, {})
    usual = {each.name: each.default for each in fields_for(TASKS[task])[1]}
    assert read_item(TASKS[task], "m", form | usual)[1] == {"model": "m"}


def test_options_have_the_types_that_their_schema_says() -> None:
    given = {"top_k": "3", "offsets": "utf16\nbytes", "no_answer": "false", "align_to_words": "false\ntrue"}
    given |= {"min_precision": "0.5", "truncation": "error", "doc_stride": "", "max_windows": "many"}
    fields = fields_for(TASKS["question-answering"])[1]
    found = values_of(fields, {f"options.{name}": text for name, text in given.items()})
    assert found == {
        "top_k": 3,
        "offsets": ["utf16", "bytes"],
        "no_answer": False,
        "align_to_words": True,
        "min_precision": 0.5,
        "truncation": "error",
        "max_windows": "many",
    }
    [normalize] = [each for each in fields_for(TASKS["feature-extraction"])[1] if each.key == "normalize"]
    assert (normalize.kind, normalize.choices) == ("choice", ["true", "false"])
    assert values_of([normalize], {"options.normalize": "true"}) == {"normalize": True}


def test_object_without_a_form_is_asked_for_as_json() -> None:
    [field] = fields_of({"type": "object"}, {"a": 1})
    assert values_of([field], {"json": '{"a": [1]}'}) == {"a": [1]}
    assert not list(fields_of({"type": "object", "additionalProperties": False}, {}))
    schema = {"properties": {"box": {"$ref": "#/$defs/Box"}}, "$defs": {"Box": {"type": "object"}}}
    assert values_of(fields_of(schema, {}), {"box": '{"w": 1}'}) == {"box": {"w": 1}}


@parametrized
def test_item_is_sent_and_its_result_shown(console: TestClient, bench: Bench, core: LoneCore, task: str) -> None:
    version = version_of(bench, task)
    item, output, words = SAMPLES[task]
    form = form_of(item) | {"model": version, "task": task}
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(console.post, "/console/ask", data=form, headers={"HX-Request": "true"})
        claim = eventually(lambda: core.claim([version], linger=False), why="the page submits its item")
        assert claim is not None
        finish(core, claim, output)
    page = sent.result().text
    assert_shown(page, [*words, version])
    assert "as Python" in page


def assert_shown(page: str, words: list[str]) -> None:
    """Words stand on a page, and no markup of theirs."""
    assert "<script>" not in page
    text = text_of(page.replace("&lt;", "\N{LATIN LETTER ALVEOLAR CLICK}"))
    for word in words:
        assert word.replace("<", "\N{LATIN LETTER ALVEOLAR CLICK}") in text, text


@parametrized
def test_job_s_page_shows_its_result(console: TestClient, bench: Bench, core: LoneCore, task: str) -> None:
    version = version_of(bench, task)
    item, output, words = SAMPLES[task]
    job = console.post("/v1/jobs", json={"model": version, "items": [item | {"id": XSS}]}).json()["id"]
    waiting = console.get(f"/console/jobs/{job}/items/0").text
    assert_shown(waiting, [XSS])
    commit(core, version, output)
    page = console.get(f"/console/jobs/{job}").text
    assert_shown(
        page,
        [
            XSS,
            f"Task {task}",
            TASKS[task].present.line(TASKS[task].result.model_validate({"index": 0, "status": "succeeded", **output}))[
                0
            ],
        ],
    )
    assert_shown(console.get(f"/console/jobs/{job}/items/0").text, ["not kept", *words[1:2]])
    [row] = csv.DictReader(io.StringIO(console.get(f"/console/jobs/{job}/results.csv").text, newline=""))
    assert (row["id"], {name: orjson.loads(row[name]) for name in output}) == (XSS, output)


@parametrized
def test_result_without_output_says_so(console: TestClient, bench: Bench, core: LoneCore, task: str) -> None:
    version = version_of(bench, task)
    job = console.post("/v1/jobs", json={"model": version, "items": [SAMPLES[task][0]]}).json()["id"]
    commit(core, version, dict(TASKS[task].nothing))
    assert TASKS[task].present.empty in text_of(console.get(f"/console/jobs/{job}").text)
    assert console.get(f"/console/jobs/{job}/items/0").status_code == 200


@parametrized
def test_failed_item_is_listed_and_shown(console: TestClient, bench: Bench, core: LoneCore, task: str) -> None:
    version = version_of(bench, task)
    job = console.post("/v1/jobs", json={"model": version, "items": [SAMPLES[task][0]]}).json()["id"]
    error = {"error": {"code": "text_too_long", "detail": XSS}}
    commit(core, version, dict(TASKS[task].nothing) | error, "failed")
    assert_shown(console.get(f"/console/jobs/{job}").text, [XSS, "text_too_long"])
    assert_shown(console.get("/console/jobs?code=text_too_long").text, [job])
    assert_shown(console.get(f"/console/jobs/{job}/items/0").text, [XSS])


def test_what_has_no_template_is_shown_as_json() -> None:
    item, output, _ = SAMPLES["text-classification"]
    task = TASKS["text-classification"]
    result = task.result.model_validate({"index": 0, "status": "succeeded", **output})
    shown = {"item": task.item.model_validate(item), "result": result, "is_asked": False}
    html = fragment("any/item.html", **shown) + fragment("any/result.html", **shown)
    assert_shown(html, ['"labels": [', '"text": "'])
    assert_shown(fragment("any/form.html", fields=list(fields_of({}, item)), options=[], form={}), ["JSON"])


def test_vector_in_base64_is_shown_as_numbers() -> None:
    task = TASKS["feature-extraction"]
    given = {"index": 0, "status": "succeeded", "embedding": b64encode(pack("<2f", 3, -4)).decode()}
    result = task.result.model_validate(given)
    assert task.present.line(result)[0] == "3.000, -4.000 (2 numbers)"
    assert task.present.shown(None, result)["first"] == [3.0, -4.0]
    assert task.present.shown(None, result)["all"] == "[3, -4]"


def test_form_of_a_handler_is_that_of_its_schemas(console: TestClient, bench: Bench, core: LoneCore) -> None:
    version, told = version_of(bench, "handler"), f"As in the shop {XSS}"
    fields = {"model": {"type": "string", "description": told}, "doors": {"type": "integer", "enum": [3, 5]}}
    options = {"properties": {"top": {"type": "integer", "default": 3, "description": "How many."}}}
    takes = {"type": "object", "properties": fields, "required": ["model", "doors"]}
    facts = {"input_schema": takes, "options_schema": options, "example": {"model": "Ka", "doors": 3}}
    bench.raw.hset(keys.MODELS, version, orjson.dumps(SUMMARY | {"name": "handler", "task": "handler", "facts": facts}))
    page = console.get("/console/ask", params={"model": version, "sample": "example"}).text
    assert_shown(page, [told, "How many.", f"{version} · handler", "Ka"])
    form = form_of({"model": "Ka", "doors": "5"}) | {"model": version, "task": "handler", "options.top": "4"}
    found = read_item(TASKS["handler"].of_version(version, {"facts": facts}), version, form)
    assert found == ({"model": "Ka", "doors": 5}, {"model": version, "options": {"top": 4}})
    wrong = console.post("/console/ask", data=form | {"item.doors": "4"}, headers={"HX-Request": "true"})
    assert (wrong.status_code, "doors: 4 is not one of" in wrong.text) == (422, True)


def test_form_of_another_task_leads_to_the_right_one(console: TestClient, bench: Bench, core: LoneCore) -> None:
    version = version_of(bench, "text-classification")
    sent = console.post("/console/ask", data={"model": version, "task": "question-answering", "question": "?"})
    assert (sent.status_code, sent.headers["location"]) == (303, "../console/ask?model=text-classification%401")


def test_models_page_names_the_tasks(console: TestClient, bench: Bench, core: LoneCore) -> None:
    version_of(bench, "text-ranking")
    assert {"text-ranking", "question-answering"} <= set(text_of(console.get("/console/models").text).split())
