"""Handlers on a whole fleet: packaged, loaded beside question answering, asked, killed, and unloaded."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from corelane.client import Client
from tests.tools.fleet import Fleet, start_fleet
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

PACKAGES = ROOT / "tests" / "tasks" / "handler" / "packages"

ENVIRONMENT = {
    "CORELANE_HANDLERS": "shop.*",
    "CORELANE_INPUT_URLS": "http://*/",
    "CORELANE_REFERENCE_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CORELANE_HANDLER_ERRORS": "frames",
    "PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}",
}


@pytest.fixture(scope="module")
def shop(built_in_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a fleet whose workers may import the package."""
    folder = tmp_path_factory.mktemp("shop")
    artifacts = shutil.copytree(built_in_data / "artifacts", folder / "artifacts", copy_function=os.link)
    fleet = start_fleet(folder, artifacts, CORELANE_CORE_RESTARTS="50", **ENVIRONMENT)
    yield fleet
    fleet.end()


def run(fleet: Fleet, *arguments: str, **env: str) -> str:
    """Run a command of a service's host; return what it says."""
    environment = {**os.environ, **ENVIRONMENT, "CORELANE_URL": fleet.url, **env}
    environment["CORELANE_ARTIFACTS_DIR"] = str(fleet.artifacts)
    argv = [sys.executable, "-m", "corelane", *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=fleet.data, timeout=200)
    return done.stdout + done.stderr


def serve(fleet: Fleet, handler: str, name: str) -> str:
    """Package a handler and load it; return the version."""
    version = json.loads(run(fleet, "models", "package", f"shop.models:{handler}", "--name", name, "--json"))["id"]
    assert "is ready on" in (said := run(fleet, "models", "load", version)), said
    return version


def finished(fleet: Fleet, job: str) -> dict[str, Any]:
    """Wait for a job's end."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = fleet.api.get(f"/v1/jobs/{job}").json()
        return found if found["finished_at"] else None

    found = eventually(look, 120)
    assert found is not None
    return found


def ask(fleet: Fleet, model: str, items: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Ask a model, and wait for the results."""
    body = {"model": model, "items": items} | more
    return fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).raise_for_status().json()


def test_handler_answers_beside_question_answering(shop: Fleet) -> None:
    version = serve(shop, "Sentiment", "sentiment")
    job = ask(shop, "sentiment", [{"id": "a", "text": "so rude"}, {"text": "so kind"}])
    assert (job["task"], job["model"], job["status"]) == ("handler", version, "succeeded")
    assert [result["output"] for result in job["results"]] == [
        {"label": "bad", "score": 1.0},
        {"label": "good", "score": 1.0},
    ]
    assert job["results"][0]["id"] == "a"
    assert job["usage"]["tokens"] == 2, job["usage"]
    one = shop.api.post("/v1/jobs", json={"model": version, "text": "so kind"}, headers={"Prefer": "wait=60"}).json()
    assert one["results"][0]["output"]["label"] == "good"
    asked = {"question": "Who wrote it?", "context": "Ada wrote it."}
    answered = shop.api.post("/v1/jobs", json=asked, headers={"Prefer": "wait=60"}).json()
    assert answered["results"][0]["answer"]["text"] == "Ada"


def test_process_above_its_bound_is_replaced_between_batches_and_the_log_has_what_it_printed(shop: Fleet) -> None:
    version = serve(shop, "Hoarder", "hoarder")
    before = {core["pid"] for core in shop.states().values()}
    job = finished(shop, ask(shop, version, [{"text": str(n)} for n in range(40)])["id"])
    assert job["counts"]["succeeded"] == 40
    eventually(lambda: {core["pid"] for core in shop.states().values()} - before, 60, shop.last_words)
    log = [json.loads(line) for line in shop.log_text().splitlines() if '"version":"hoarder@' in line]
    events = Counter(line["event"] for line in log)
    assert events["memory_above_bound"] >= 1, events
    assert sum(count for event, count in events.items() if event.startswith("keeps ")) == 40, "each was run once"
    logged = [line for line in log if line["event"].startswith("logged ")]
    assert sorted(line["event"] for line in logged) == sorted(f"logged {n}" for n in range(40))
    assert {(line["core"].partition("/")[0], line["job"], line["logger"]) for line in logged} == {
        (shop.host, job["id"], "shop")
    }
    assert all(line["event"] == f"logged {line['item']}" for line in logged)
    shop.wait_whole()


def test_outputs_that_look_like_results_reach_only_their_own_jobs(shop: Fleet) -> None:
    version = serve(shop, "Listing", "listing")
    texts = [{"text": "the same"}, {"text": "the same as well"}]
    sent = [shop.api.post("/v1/jobs", json={"model": version, "items": texts}) for _ in range(40)]
    jobs = [accepted.raise_for_status().json()["id"] for accepted in sent]
    rows = [{"index": 0, "id": "a"}, {"index": 1, "id": "b"}]
    for job in jobs:
        finished(shop, job)
        found = shop.api.get(f"/v1/jobs/{job}/results")
        assert found.status_code == 200, found.text
        results = found.json()["data"]
        assert [(result["index"], result["output"]) for result in results] == [(0, rows), (1, rows)]


def test_files_that_items_name_are_fetched_by_the_worker(shop: Fleet, httpserver: HTTPServer, tmp_path: Path) -> None:
    version = serve(shop, "Sizes", "sizes")
    (tmp_path / "a.gif").write_bytes(b"GIF89a")
    with Client(shop.url) as client:
        kept = client.upload_file(tmp_path / "a.gif", "user_data")
    httpserver.expect_request("/a").respond_with_data(b"12345", content_type="text/plain; charset=utf-8")
    named = [httpserver.url_for("/a"), {"file_id": kept.id}, httpserver.url_for("/gone"), httpserver.url_for("/a")]
    results = ask(shop, version, [{"image": each} for each in named])["results"]
    [first, second, gone, last] = [result["output"] or result["error"] for result in results]
    assert first == last == {"size": 5, "type": "text/plain"}
    assert second == {"size": 6, "type": "image/gif"}
    assert (gone["code"], "/gone: the server answered" in gone["detail"]) == ("input_failed", True), gone
    assert sum(request.path == "/a" for request, _ in httpserver.log) <= 2, "a batch asks once"


def test_core_that_is_killed_while_it_fetches_loses_no_item(shop: Fleet, httpserver: HTTPServer) -> None:
    version, struck = serve(shop, "Sizes", "sizes"), list[int]()

    def strike(_: Request) -> Response:
        if not struck:
            struck.extend(core["pid"] for core in shop.states().values())
            for pid in struck:
                os.kill(pid, signal.SIGKILL)
        return Response(b"12345", content_type="text/plain")

    httpserver.expect_request("/strike").respond_with_handler(strike)
    job = ask(shop, version, [{"id": str(n), "image": httpserver.url_for("/strike")} for n in range(40)])
    results = finished(shop, job["id"])["results"]
    assert [(each["id"], each["output"]["size"]) for each in results] == [(str(n), 5) for n in range(40)]
    assert struck
    shop.wait_whole()


def test_item_of_another_form_is_refused_with_the_form_and_an_example(shop: Fleet) -> None:
    serve(shop, "Translator", "translator")
    for body, place in (
        ({"items": [{"text": "a"}, {"words": 3}]}, "items.1"),
        ({"items": [{"text": 3}]}, "text: 3 is not of type"),
        ({"words": 3}, "words"),
    ):
        refused = shop.api.post("/v1/jobs", json={"model": "translator", **body})
        assert refused.status_code == 422
        assert place in refused.text
    assert '{\\"text\\": string}' in (
        said := shop.api.post("/v1/jobs", json={"model": "translator", "items": [{"text": 3}]}).text
    ), said
    assert "The room was clean." in said
    lines = '{"model": "translator"}\n{"text": "a"}\n{"words": "b"}\n'
    kind = {"Content-Type": "application/x-ndjson"}
    refused = shop.api.post("/v1/jobs", content=lines, headers=kind)
    assert (refused.status_code, "line 3" in refused.text) == (422, True), refused.text
    taken = shop.api.post("/v1/jobs", content=lines.replace("{", '{"invalid_items": "fail", ', 1), headers=kind).json()
    job = finished(shop, taken["id"])
    assert [result["status"] for result in job["results"]] == ["succeeded", "failed"]
    assert job["results"][1]["error"]["code"] == "invalid_input"
    wrong = shop.api.post("/v1/jobs", json={"model": "translator", "text": "a", "options": {"language": "it"}})
    assert (wrong.status_code, "language" in wrong.text) == (422, True), wrong.text
    job = ask(shop, "translator", [{"text": "a"}], options={"language": "fr"})
    assert job["results"][0]["output"]["label"] == "fr:a"
    assert job["options"] == {"language": "fr"}


def test_two_versions_share_an_alias_and_one_leaves(shop: Fleet) -> None:
    first, second = serve(shop, "Sentiment", "sentiment"), serve(shop, "SecondSentiment", "sentiment")
    assert first.partition("@")[0] == second.partition("@")[0] != first
    shop.api.put("/v1/aliases/mood", json={"weights": {first: 1, second: 1}}).raise_for_status()
    scores = {ask(shop, "mood", [{"text": f"kind {n}"}])["results"][0]["output"]["score"] for n in range(24)}
    assert scores == {1.0, 0.5}
    shop.api.put("/v1/aliases/mood", json={"version": second}).raise_for_status()
    said = run(shop, "models", "unload", first)
    eventually(lambda: first not in str(shop.api.get("/v1/models").json()), why=lambda: said)
    assert ask(shop, "mood", [{"text": "kind"}])["model"] == second


def test_first_line_that_names_a_model_is_a_head(shop: Fleet) -> None:
    assert serve(shop, "Translator", "translator") in run(shop, "models", "list")
    lines = '{"model": "translator", "surprise": 1}\n{"text": "a"}\n'
    refused = shop.api.post("/v1/jobs", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert (refused.status_code, "line 1" in refused.text) == (422, True), refused.text


def test_item_that_hangs_or_kills_its_process_is_given_up_alone(shop: Fleet) -> None:
    serve(shop, "Hanging", "hanging")
    causes = {
        "hang": "ran longer than its `timeout_s` allows: 1.0 s",
        "crash": "killed by SIGKILL",
        "segment": "killed by SIGSEGV",
        "exit": "exited with status 3",
    }
    texts = ["kind", *causes, "memory", "rude"]
    job = ask(shop, "hanging", [{"text": text} for text in texts])
    results = dict(zip(texts, finished(shop, job["id"])["results"], strict=True))
    for text, cause in causes.items():
        error = results[text]["error"]
        assert (error["code"], cause in error["detail"]) == ("worker_lost", True), error
    assert "MemoryError at models.py" in results["memory"]["error"]["detail"]
    assert {results[text]["status"] for text in ("kind", "rude")} == {"succeeded"}
    shop.wait_whole()


def test_outputs_that_cannot_be_stored_fail_alone_among_the_items_of_several_jobs(shop: Fleet) -> None:
    version = serve(shop, "Hostile", "hostile")
    odd = ["huge", "surrogate", "nan", "object", "deep", "large", "many", "leave", "interrupt", "validator", "error"]
    headers = {"Prefer": "wait=0"}
    jobs = [
        shop.api.post("/v1/jobs", json={"model": version, "items": [{"text": each} for each in texts]}, headers=headers)
        for texts in (["kind", *odd, "kind"], ["kind"] * 40, ["nan"], ["kind"])
    ]
    mixed, *others = [finished(shop, job.raise_for_status().json()["id"]) for job in jobs]
    failed = {text: each["error"] for text, each in zip(["kind", *odd, "kind"], mixed["results"], strict=True)}
    assert {text for text, error in failed.items() if error} == {*odd} - {"many"}
    assert {error["code"] for error in failed.values() if error} == {"run_failed", "output_too_large"}
    assert [job["counts"]["succeeded"] for job in others] == [40, 0, 1]
    assert "password" not in str([mixed, others])
    assert shop.log.read_text().count("password")


def test_handler_may_have_processes_which_end_with_its_own(shop: Fleet) -> None:
    version = serve(shop, "Parallel", "parallel")
    item = ask(shop, version, [{"text": "a"}])["results"][0]
    assert item["error"] is None, item
    pids = [int(pid) for pid in item["output"]["label"].split()]
    assert len(pids) >= 4
    for core in shop.states().values():
        os.kill(core["pid"], signal.SIGKILL)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30, why=lambda: str(pids))
    shop.wait_whole()


def test_thousand_items_are_answered_once_each_though_their_process_is_killed_twice(shop: Fleet) -> None:
    version = serve(shop, "Slow", "slow")
    lines = [{"model": version}, *({"id": str(n), "text": f"{n} kind"} for n in range(1000))]
    body = "\n".join(map(json.dumps, lines))
    job = shop.api.post("/v1/jobs", content=body, headers={"Content-Type": "application/x-ndjson"}).json()

    def counts() -> dict[str, int]:
        return shop.api.get(f"/v1/jobs/{job['id']}").json()["counts"]

    for done in (100, 400):
        while counts()["succeeded"] < done:
            time.sleep(0.02)
        busy = eventually(
            lambda: [core for core in shop.states().values() if core["state"] == "busy" and core["pid"]],
            why=lambda: str(shop.states()),
        )
        os.kill(busy[0]["pid"], signal.SIGKILL)
    eventually(lambda: counts()["succeeded"] == 1000, 120, why=lambda: str(counts()))
    found = shop.api.get(f"/v1/jobs/{job['id']}/results", params={"limit": 1000}).json()["data"]
    assert Counter(result["id"] for result in found) == {str(n): 1 for n in range(1000)}
    assert all(result["output"]["label"] == "good" for result in found)
    shop.wait_whole()


def test_handler_that_does_not_load_is_named_and_the_service_stays_up(shop: Fleet) -> None:
    said = run(shop, "models", "package", "shop.models:Broken", "--name", "broken")
    assert "corelane models load broken" in said
    assert "FileNotFoundError at models.py" in run(shop, "models", "load", "broken", "--wait", "60")
    said = run(shop, "models", "package", "json:JSONDecoder", "--name", "other")
    assert "CORELANE_HANDLERS" in said
    assert ask(shop, "default", [{"question": "Who?", "context": "Ada wrote it."}])["status"] == "succeeded"
