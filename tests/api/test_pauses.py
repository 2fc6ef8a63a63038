"""Pauses over HTTP, as commands and on the console: who may, what everybody is told, and what the audit has."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import redis
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.cli.doctor import check_service
from corelane.client import Client
from corelane.plugins.console import overviews
from corelane.settings import Settings
from corelane.store import keys
from tests.api.conftest import Service
from tests.api.office import ANN, BOB, OPS, READER, Office, open_office
from tests.corelane.store_bench import VERSION, answer_all, answered, claimed
from tests.plugins.console.conftest import SUMMARY

CONSOLE = True

#: What a heartbeat of a worker tells beside its state.
BEAT = {"versions": f'["{VERSION}"]', "models": f'[{{"version": "{VERSION}", "state": "ready"}}]'}
BEAT |= {"pid": "1", "node": "n", "queue": "q", "cpus": "0", "busy": "0", "items": "0", "reasons": "[]"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give a core that was announced once a lease for the whole test."""
    return settings.model_copy(update={"lease_s": 60})


@pytest.fixture
def office(settings: Settings, raw: redis.Redis, bell: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(overviews, "KEPT_S", 0.0)
    with open_office(settings, raw, bell) as office:
        office.bench.core("a/0", 1000.0)
        office.bench.upkeep.went_round()
        office.bench.raw.hset("cl:core:a/0", mapping=BEAT)
        yield office


def job_of(office: Office, who: str, job: str) -> dict[str, Any]:
    return dict(office.call(who, "GET", f"/v1/jobs/{job}").json())


@pytest.mark.parametrize("path", [f"owner/{ANN}", f"model/{VERSION}"])
def test_pause_is_told_to_all_who_wait_and_seen_by_operators_until_it_ends(office: Office, path: str) -> None:
    kind, _, name = path.partition("/")
    made = office.call(OPS, "PUT", f"/v1/pauses/{path}")
    assert (made.status_code, made.json()["by"]) == (200, OPS)
    assert office.call(OPS, "PUT", f"/v1/pauses/{path}").json() == made.json()
    job = office.submit(ANN)
    waiting = job_of(office, ANN, job)
    assert waiting["status"] == "queued"
    assert f"{kind} {name} is paused by {OPS} since " in waiting["waiting_for"]
    seen = office.call(OPS, "GET", "/v1/overview").json()
    assert seen["waiting"]["text"] == "1 item waits, all paused"
    assert [(each["kind"], each["name"]) for each in seen["paused"]] == [(kind, name)]
    [issue] = seen["troubles"]
    assert (issue["part"], OPS in issue["text"]) == (f"{kind} {name}", True)
    assert office.api.get("/readyz").status_code == 200
    metrics = office.api.get("/metrics").text
    assert "\ncorelane_backlog_seconds 0.0\n" in metrics
    assert re.search(r'^corelane_paused_tokens\{version="tiny@1"\} [1-9]', metrics, re.MULTILINE)
    assert re.search(rf'^corelane_paused_seconds\{{kind="{kind}"\}} (?!0\.0$)', metrics, re.MULTILINE)
    assert office.call(OPS, "DELETE", f"/v1/pauses/{path}").status_code == 204
    assert office.call(OPS, "DELETE", f"/v1/pauses/{path}").status_code == 204
    office.bench.core("a/0")
    answer_all(office.bench.core("a/0"))
    assert job_of(office, ANN, job)["status"] == "succeeded"
    assert office.call(OPS, "GET", "/v1/overview").json()["troubles"] == []
    assert office.audited() == [(OPS, action, f"{kind} {name}", "") for action in ("pause", "resume")]


def test_job_that_runs_says_that_the_rest_of_it_is_paused(office: Office) -> None:
    job = office.submit(ANN, question=None, context=None, items=[{"question": "who", "context": "ada"}] * 200)
    core = office.bench.core("a/0")
    claimed(core)
    office.call(OPS, "PUT", f"/v1/pauses/owner/{ANN}")
    assert (job_of(office, ANN, job)["status"], OPS in job_of(office, ANN, job)["waiting_for"]) == ("running", True)


def test_admins_alone_pause_and_see_whose_work_waits(office: Office) -> None:
    office.submit(ANN)
    for _ in range(2):
        office.submit(BOB)
    assert office.call(ANN, "PUT", f"/v1/pauses/owner/{ANN}").status_code == 403
    assert office.call(OPS, "PUT", "/v1/pauses/owner/nobody").status_code == 404
    assert office.call(OPS, "PUT", "/v1/pauses/model/b@7").json()["detail"].startswith("there is no model 'b@7'")
    assert office.call(OPS, "PUT", "/v1/pauses/core/a/0").status_code == 422
    office.call(OPS, "PUT", f"/v1/pauses/owner/{ANN}")
    office.call(OPS, "PUT", f"/v1/pauses/model/{VERSION}")
    seen = office.call(OPS, "GET", "/v1/overview").json()
    assert [(each["owner"], each["items"], each["jobs"]) for each in seen["owners"]] == [(BOB, 2, 2), (ANN, 1, 1)]
    assert seen["owners"][0]["tokens"] == 2 * seen["owners"][1]["tokens"]
    shown = office.call(READER, "GET", "/v1/overview")
    assert (shown.json()["owners"], [each["kind"] for each in shown.json()["paused"]]) == ([], ["model"])
    assert [each["kind"] for each in office.call(READER, "GET", "/v1/pauses").json()["data"]] == ["model"]
    assert len(office.call(OPS, "GET", "/v1/pauses").json()["data"]) == 2
    assert f"owner {ANN}" not in shown.text
    assert ANN not in office.call(READER, "GET", "/v1/history").text


def run(service: Service, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(make_cli(), [*arguments, "--url", service.url])
    return done.exit_code, done.output


def test_commands_pause_and_resume(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "KEPT_S", 0.0)
    service.bench.upkeep.went_round()
    service.bench.raw.hset("cl:core:a/0", mapping=BEAT)
    code, printed = run(service, "jobs", "pause", "model", VERSION)
    assert (code, printed.startswith(f"model {VERSION} is paused by public since ")) == (0, True)
    assert run(service, "jobs", "paused")[1].count(VERSION) == 1
    assert f"! model {VERSION}: is paused by public since " in run(service, "top")[1]
    assert f"model {VERSION}: is paused" in check_service(service.bench.settings).found
    with Client(service.url) as client:
        assert [pause.name for pause in client.pauses()] == [VERSION]
        assert run(service, "jobs", "resume", "model", VERSION) == (0, f"model {VERSION} goes on\n")
        assert client.pause("owner", "public").name == "public"
        client.resume("owner", "public")
        assert client.pauses() == []
    assert "public is the only owner" in run(service, "jobs", "pause", "owner", "somebody")[1]
    assert run(service, "jobs", "pause", "core", "a/0")[0] != 0


def page(office: Office, who: str, path: str) -> str:
    return str(office.call(who, "GET", f"/console/{path}").text)


def post(office: Office, who: str, path: str, **form: Any) -> Any:
    headers = {"Authorization": f"Bearer {office.secrets[who]}", "Sec-Fetch-Site": "same-origin"}
    return office.api.post(f"/console/{path}", headers=headers, data=form)


def test_console_shows_admins_whose_work_waits_and_pauses_without_scripts(office: Office) -> None:
    office.bench.raw.hset(keys.MODELS, VERSION, orjson.dumps(SUMMARY))
    office.submit(ANN)
    assert "Whose work waits" not in page(office, READER, "")
    assert 'action="pauses/pause"' not in page(office, READER, "")
    assert f'<a href="jobs?owner={ANN}&amp;' in page(office, OPS, "")
    shown = post(office, OPS, "pauses/pause", kind="owner", name=ANN, back=".")
    assert (shown.status_code, "Paused. Work in flight ends" in shown.text) == (200, True)
    assert f"owner {ANN}" in shown.text
    assert 'action="pauses/resume"' in shown.text
    assert post(office, READER, "pauses/resume", kind="owner", name=ANN, back=".").status_code == 403
    assert "Resumed." in post(office, OPS, "pauses/resume", kind="owner", name=ANN, back="models").text
    post(office, OPS, "pauses/pause", kind="model", name=VERSION, back="models")
    assert "is paused by ops" in page(office, READER, "models")
    foreign = {"Authorization": f"Bearer {office.secrets[OPS]}", "Sec-Fetch-Site": "cross-site"}
    form = {"kind": "model", "name": VERSION, "back": "."}
    assert office.api.post("/console/pauses/resume", headers=foreign, data=form).status_code == 403


def test_jobs_page_of_an_admin_says_that_others_have_jobs(office: Office) -> None:
    for _ in range(3):
        office.submit(ANN)
    shown = page(office, OPS, "jobs")
    assert "Other owners have 3, 3 of them open" in shown
    assert "No jobs of yours yet" in shown
    assert 'href="jobs?owner=%2A"' in shown
    every = page(office, OPS, "jobs?owner=*")
    assert every.count(f'<span class="quiet">{ANN}</span>') == 3
    assert "Other owners" not in every + page(office, ANN, "jobs")


def fail_with(office: Office, code: str) -> None:
    """Have all items that wait fail with a code."""
    core = office.bench.core("a/0")
    while office.bench.waiting():
        claim = claimed(core)
        outcomes = answered(claim, "failed")
        for result in (result for outcome in outcomes for result in outcome.results):
            result["error"] = {"code": code, "detail": "it did not work"}
        core.commit(claim.lease, outcomes)


def test_what_would_fail_again_is_neither_offered_nor_retried(office: Office) -> None:
    long = office.submit(ANN)
    fail_with(office, "question_too_long")
    lost = office.submit(ANN)
    fail_with(office, "worker_lost")
    assert job_of(office, ANN, long)["failures"] == [{"code": "question_too_long", "count": 1, "retryable": False}]
    refused = office.call(ANN, "POST", f"/v1/jobs/{long}/retry")
    assert refused.json()["code"] == "nothing_to_retry"
    assert "would fail again (question_too_long)" in refused.json()["detail"]
    assert "Retry" not in re.sub(r"<a .*?</a>", "", page(office, ANN, f"jobs/{long}").split('id="results"')[0])
    assert "it would fail again" in page(office, ANN, f"jobs/{long}")
    assert "Retry 1 item" in page(office, ANN, f"jobs/{lost}")
    assert "<code>question_too_long</code>" in page(office, ANN, "jobs?status=failed")
    listed = page(office, ANN, "jobs?code=question_too_long")
    assert (f"jobs/{long}" in listed, f"jobs/{lost}" in listed) == (True, False)


def test_retry_leaves_out_items_that_would_fail_again(office: Office) -> None:
    items = [{"id": str(n), "question": "who", "context": "ada"} for n in range(3)]
    job = office.submit(ANN, question=None, context=None, items=items)
    core = office.bench.core("a/0")
    claim = claimed(core)
    outcomes = answered(claim)
    for result, code in zip(outcomes[0].results, ("too_many_windows", "worker_lost"), strict=False):
        result |= {"status": "failed", "error": {"code": code, "detail": "it did not work"}}
    core.commit(claim.lease, outcomes)
    made = office.call(ANN, "POST", f"/v1/jobs/{job}/retry").json()
    assert made["counts"]["total"] == 1
    [payload] = office.bench.raw.hvals(f"cl:in:{{{made['id']}}}")
    assert orjson.loads(payload)[0][0] == "1"
