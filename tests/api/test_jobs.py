"""Jobs over HTTP: named, sent twice, listed, tagged, retried, deleted, gone."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import orjson
import pytest

from corelane.domain.ids import is_job_id, new_job_id
from corelane.domain.jobs import Priority
from corelane.store.feeding import Feeder
from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, LoneCore, announce, answer_all, answered, claimed
from tests.tools.keys import as_owner
from tests.tools.waiting import eventually

ONE = {"question": "Who wrote it?", "context": "Ada wrote it."}
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}


def lines(count: int, head: dict[str, Any] | None = None) -> bytes:
    rows = [{"id": f"i{n}", "question": f"Who wrote {n}?", "context": "Ada wrote it."} for n in range(count)]
    return b"\n".join(map(orjson.dumps, [head, *rows] if head else rows))


def core_of(service: Service) -> LoneCore:
    return service.bench.core("a/0")


def submit(service: Service, **body: Any) -> dict[str, Any]:
    response = service.http.post("/v1/jobs", json=ONE | body)
    assert response.status_code == 202, response.text
    return response.json()


def code_of(response: httpx2.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.json()["code"]


# For a model that no core holds


def test_job_that_nobody_would_answer_is_refused_and_one_that_waits_for_a_core_says_so(service: Service) -> None:
    bench = service.bench
    announce(bench.settings, "a/0", "old@1")
    refused = service.http.post("/v1/jobs", json=ONE | {"model": "old@1"})
    assert code_of(refused, 409) == "version_not_ready"
    assert "corelane models load old@1" in refused.json()["detail"]
    lines_refused = service.http.post("/v1/jobs", content=lines(2, {"model": "old@1"}), headers=LINES)
    assert code_of(lines_refused, 409) == "version_not_ready"

    bench.raw.hset("cl:core:a/0", "models", orjson.dumps([{"version": "old@1", "state": "loading"}]))
    job = submit(service, model="old@1")
    assert job["waiting_for"] == "no core holds old@1 yet: it is loading on a/0"
    assert service.http.get(job["urls"]["self"]).json()["waiting_for"] == job["waiting_for"]
    assert submit(service)["waiting_for"] is None


# Too large


def test_job_larger_than_all_that_may_wait_is_refused_for_good_and_taken_as_lines(service: Service) -> None:
    passage = "the river was wide and red at dusk " * 30_000
    asked = [{"question": f"What was number {n}?", "context_id": "p"} for n in range(1000)]
    head = {"contexts": {"p": passage}}
    refused = service.http.post("/v1/jobs", json={**head, "items": asked})
    assert code_of(refused, 413) == "too_large"
    assert "send it as lines (application/x-ndjson)" in refused.json()["detail"]
    assert "CORELANE_MAX_OWNER_TOKENS" in refused.json()["detail"]
    assert not service.bench.raw.exists("cl:owed")
    body = b"\n".join(map(orjson.dumps, [head, *asked]))
    assert service.http.post("/v1/jobs", content=body, headers=LINES).status_code == 202


def test_only_item_is_not_numbered_and_the_setting_is_named(service: Service) -> None:
    most = service.bench.settings.max_question_chars
    said = [
        service.http.post("/v1/jobs", json={"items": [ONE] * count + [ONE | {"question": "x" * (most + 1)}]})
        for count in (0, 1)
    ]
    assert [code_of(response, 413) for response in said] == ["too_large"] * 2
    assert said[0].json()["detail"].startswith("the question is longer than 10,000 characters")
    assert said[1].json()["detail"].startswith("item 1: the question is longer than 10,000 characters")
    assert all("CORELANE_MAX_QUESTION_CHARS" in response.json()["detail"] for response in said)
    long = {"items": [ONE | {"context": "x" * (service.bench.settings.max_context_chars + 1)}]}
    assert "CORELANE_MAX_CONTEXT_CHARS" in service.http.post("/v1/jobs", json=long).json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/answers", ONE | {"priority": "high"}),
        ("/v1/hf/question-answering", {"inputs": ONE, "parameters": {"priority": "high"}}),
    ],
)
def test_one_question_may_have_a_priority(service: Service, path: str, body: dict[str, Any]) -> None:
    answer = service.http.post(path, json=body, params={"wait": 0})
    assert answer.status_code == (202 if path == "/v1/answers" else 503)
    [(ref, _)] = claimed(core_of(service)).refs
    assert ref.priority == Priority.HIGH.rank


# For a time to come


@pytest.mark.parametrize(("hours", "sentence"), [(721, "at most 30 days ahead"), (2, "after the job expires"), (1, "")])
def test_job_waits_for_its_time_or_is_told_why_not(service: Service, hours: int, sentence: str) -> None:
    time = (datetime.now(UTC) + timedelta(hours=hours)).replace(microsecond=0)
    for form, given in ((JSON, f"{time}"), (LINES, int(time.timestamp()))):
        head = {"not_before": given, "expires_in_s": 5400}
        body = orjson.dumps(ONE | head) if form is JSON else lines(2, head)
        sent = form | {"Idempotency-Key": f"{given}"}
        first, again = [service.http.post("/v1/jobs", content=body, headers=sent) for _ in range(2)]
        assert sentence in again.json().get("detail", "")
        assert bool(sentence) or first.json()["not_before"] == f"{time:%Y-%m-%dT%H:%M:%S}.000Z"
        assert bool(sentence) or 3500 < int(first.headers["Retry-After"]) <= 3600
        assert (first.status_code, first.json().get("id")) == (422 if sentence else 202, again.json().get("id"))
        if not sentence:
            job = service.http.get(first.json()["urls"]["self"]).json()
            assert first.json()["waiting_for"] == job["waiting_for"] == f"its time to come, {job['not_before']}"
            assert service.http.get("/v1/overview").json()["waiting"]["text"].endswith("and none may begin yet")
            assert service.http.post(job["urls"]["cancel"]).json()["waiting_for"] is None


@pytest.mark.parametrize("time", [0, 1_500_000_000])
def test_time_that_has_come_is_no_time_to_wait_for(service: Service, time: int) -> None:
    job = service.http.post("/v1/jobs", json=ONE | {"not_before": time}).json()
    assert job["not_before"] is service.http.get(job["urls"]["self"]).json()["not_before"] is job["waiting_for"] is None


# Sent twice


@pytest.mark.parametrize("body", [orjson.dumps(ONE), lines(3)], ids=["json", "lines"])
def test_request_that_is_sent_again_is_the_same_job_and_another_body_is_refused(guarded: Service, body: bytes) -> None:
    is_lines = body.startswith(b'{"id"')
    headers = {"Idempotency-Key": "k 1", **(LINES if is_lines else JSON)}
    first = guarded.http.post("/v1/jobs", content=body, headers=headers)
    again = guarded.http.post("/v1/jobs", content=body, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    other = guarded.http.post("/v1/jobs", content=body + b"\n", headers=headers)
    assert code_of(other, 422) == "idempotency_key_reused"
    assert guarded.http.get("/v1/jobs").json()["first_id"] == first.json()["id"]
    assert len(guarded.http.get("/v1/jobs").json()["data"]) == 1
    assert len(list(guarded.bench.settings.files_root.glob("job_*"))) == is_lines
    theirs = guarded.http.post("/v1/jobs", content=body, headers=headers | as_owner("other"))
    assert theirs.json()["id"] != first.json()["id"]


def test_request_sent_again_after_its_job_ended_is_answered_with_it(service: Service) -> None:
    headers = {"Idempotency-Key": "k"}
    job = service.http.post("/v1/jobs", json=ONE, headers=headers).json()
    answer_all(core_of(service))
    again = service.http.post("/v1/jobs", json=ONE, headers=headers | {"Prefer": "wait=5"})
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, job["id"], "succeeded")
    assert again.json()["results"][0]["status"] == "succeeded"
    service.http.delete(job["urls"]["self"])
    assert code_of(service.http.post("/v1/jobs", json=ONE, headers=headers), 410) == "job_expired"
    assert code_of(service.http.post("/v1/jobs", content=lines(1), headers=headers | LINES), 422) == (
        "idempotency_key_reused"
    )


@pytest.mark.parametrize("form", ["json", "lines", "name"])
def test_fifty_posts_at_once_with_one_key_are_one_job(service: Service, form: str) -> None:
    def send(_: int) -> httpx2.Response:
        if form == "name":
            return service.http.put("/v1/jobs/mine", json=ONE)
        content, headers = (lines(2), LINES) if form == "lines" else (orjson.dumps(ONE), JSON)
        return service.http.post("/v1/jobs", content=content, headers={"Idempotency-Key": "once", **headers})

    with ThreadPoolExecutor(50) as pool:
        responses = list(pool.map(send, range(50)))
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert sum("Idempotent-Replayed" not in response.headers for response in responses) == 1
    assert len(service.http.get("/v1/jobs").json()["data"]) == 1
    assert len(list(service.bench.settings.files_root.glob("job_*"))) == (form == "lines")
    assert len(answer_all(core_of(service))) == (form != "lines")


@pytest.mark.parametrize("key", ["", "x" * 256, "snow\u2603", "tab\there"])
def test_idempotency_keys_that_cannot_be_are_refused(service: Service, key: str) -> None:
    response = service.http.post("/v1/jobs", json=ONE, headers=[(b"Idempotency-Key", key.encode())])
    assert code_of(response, 422) == "invalid_input"


def test_key_of_a_refused_request_stays_free(service: Service) -> None:
    headers = {"Idempotency-Key": "k"}
    refused = service.http.post("/v1/jobs", json=ONE | {"model": "nobody"}, headers=headers)
    assert code_of(refused, 422) == "unknown_model"
    broken = service.http.post("/v1/jobs", content=lines(2) + b"\nbroken", headers=headers | LINES)
    assert code_of(broken, 422) == "invalid_input"
    assert service.http.post("/v1/jobs", json=ONE, headers=headers).status_code == 202


# Names


def test_job_made_by_name_is_found_by_name_wherever_an_id_may_stand(guarded: Service) -> None:
    made = guarded.http.put("/v1/jobs/report-7", json=ONE)
    assert (made.status_code, made.json()["name"]) == (202, "report-7")
    job = made.json()
    assert is_job_id(job["id"])
    again = guarded.http.put("/v1/jobs/report-7", json=ONE)
    assert (again.json()["id"], again.headers["Idempotent-Replayed"]) == (job["id"], "true")
    assert code_of(guarded.http.put("/v1/jobs/report-7", json=ONE | {"id": "x"}), 409) == "name_taken"
    assert guarded.http.get("/v1/jobs/report-7").json()["id"] == job["id"]
    assert code_of(guarded.http.get("/v1/jobs/report-7", headers=as_owner("other")), 404) == "not_found"
    assert guarded.http.get("/v1/jobs/report-7/results").json()["data"] == []
    assert guarded.http.post("/v1/jobs/report-7/cancel").json()["status"] == "canceled"
    assert guarded.http.put("/v1/jobs/report-7", json=ONE).status_code == 200
    assert guarded.http.delete("/v1/jobs/report-7").status_code == 204
    assert code_of(guarded.http.get("/v1/jobs/report-7"), 404) == "not_found"
    renewed = guarded.http.put("/v1/jobs/report-7", content=lines(2), headers=LINES)
    assert renewed.status_code == 202
    assert renewed.json()["id"] != job["id"]
    assert guarded.http.put("/v1/jobs/report-7", content=lines(2), headers=LINES).json()["id"] == renewed.json()["id"]


def test_name_is_free_again_when_its_job_is_kept_no_longer(service: Service) -> None:
    job = service.http.put("/v1/jobs/a", json=ONE).json()
    answer_all(core_of(service))
    raw = service.bench.raw
    assert raw.pttl("cl:name:public:a") == pytest.approx(raw.pttl(f"cl:job:{{{job['id']}}}"), abs=50)
    raw.delete(f"cl:job:{{{job['id']}}}")
    assert service.http.put("/v1/jobs/a", json=ONE | {"id": "x"}).status_code == 202
    assert service.http.get("/v1/jobs/a").json()["id"] != job["id"]


@pytest.mark.parametrize("name", ["job_mine", "%2E%2E", "a%20b", "x" * 129, "caf%C3%A9"])
def test_names_that_cannot_be_are_refused(service: Service, name: str) -> None:
    assert code_of(service.http.put(f"/v1/jobs/{name}", json=ONE), 422) == "invalid_input"
    assert code_of(service.http.get(f"/v1/jobs/{name}"), 404) == "not_found"


# Listing


def test_jobs_are_listed_newest_first_by_pages(guarded: Service) -> None:
    made = [submit(guarded)["id"] for _ in range(5)][::-1]
    assert guarded.http.get("/v1/jobs", headers=as_owner("other")).json() == {
        "object": "list", "data": [], "has_more": False, "next": None, "first_id": None, "last_id": None,
    }  # fmt: skip
    response = guarded.http.get("/v1/jobs", params={"limit": 2})
    page = response.json()
    assert [job["id"] for job in page["data"]] == made[:2]
    assert (page["first_id"], page["last_id"], page["has_more"], page["next"]) == (made[0], made[1], True, made[1])
    assert page["data"][0]["results"] is None
    link = response.headers["Link"]
    assert link == f'</v1/jobs?limit=2&after={made[1]}>; rel="next"'
    guarded.http.delete(f"/v1/jobs/{made[1]}")
    rest = guarded.http.get(link[1 : link.index(">")]).json()
    assert [job["id"] for job in rest["data"]] == made[2:4]
    last = guarded.http.get("/v1/jobs", params={"after": rest["next"]})
    assert [job["id"] for job in last.json()["data"]] == made[4:]
    assert not last.json()["has_more"]
    assert "Link" not in last.headers


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "after=x", "status=done", "created_after=soon"])
def test_queries_that_cannot_be_are_refused(service: Service, query: str) -> None:
    assert code_of(service.http.get(f"/v1/jobs?{query}"), 422) == "invalid_input"


# ETags


def test_job_that_has_not_changed_is_not_sent_again(service: Service) -> None:
    url = submit(service)["urls"]["self"]
    first = service.http.get(url)
    tag = first.headers["ETag"]
    assert tag.startswith('W/"')
    for header in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
        same = service.http.get(url, headers={"If-None-Match": header})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    assert service.http.get(url, headers={"If-None-Match": '"x"'}).status_code == 200
    answer_all(core_of(service))
    changed = service.http.get(url, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["status"] == "succeeded"
    assert service.http.get(url, headers={"If-None-Match": changed.headers["ETag"]}).status_code == 304


# Retry


def fail_some(service: Service, failed: set[int]) -> None:
    """Answers all that waits, but for items that fail."""
    core = core_of(service)
    while (claim := core.claim([VERSION], linger=False)) is not None:
        outcomes = answered(claim)
        for outcome in outcomes:
            for result in outcome.results:
                if result["index"] in failed:
                    result["status"] = "failed"
        core.commit(claim.lease, outcomes)


def questions_of(service: Service) -> list[tuple[str | None, str, str]]:
    """Answers all that waits; what was asked."""
    core, asked = core_of(service), []
    while (claim := core.claim([VERSION], linger=False)) is not None:
        asked += [item for claimed_slice in core.fetch(claim) for item in claimed_slice.items]
        core.commit(claim.lease, answered(claim))
    return asked


def test_retry_asks_again_for_what_failed_and_nothing_else(service: Service) -> None:
    items = [{"id": f"i{n}", "question": f"q{n}?", "context_id": f"c{n % 3}"} for n in range(80)]
    items[70] = {"question": "own?", "context": "own"}
    contexts = {f"c{n}": f"context {n}" for n in range(3)}
    body = {"items": items, "contexts": contexts, "options": {"top_k": 3}, "metadata": {"a": "b"}}
    job = service.http.post("/v1/jobs", json=body | {"priority": "low", "keep_s": 600}).json()
    assert code_of(service.http.post(job["urls"]["retry"]), 409) == "not_final"
    fail_some(service, {3, 40, 70})
    response = service.http.post(job["urls"]["retry"])
    assert response.status_code == 202
    retried = response.json()
    assert (retried["retry_of"], retried["counts"]["total"]) == (job["id"], 3)
    for same in ("model", "options", "metadata", "priority"):
        assert retried[same] == job[same]
    again = service.http.post(job["urls"]["retry"])
    assert (again.json()["id"], again.headers["Idempotent-Replayed"]) == (retried["id"], "true")
    assert questions_of(service) == [
        ("i3", "q3?", "context 0"), ("i40", "q40?", "context 1"), (None, "own?", "own"),
    ]  # fmt: skip
    assert service.http.post(job["urls"]["retry"]).status_code == 200
    assert code_of(service.http.post(retried["urls"]["retry"]), 409) == "nothing_to_retry"
    assert service.http.get("/v1/jobs").json()["first_id"] == retried["id"]
    service.http.delete(retried["urls"]["self"])
    assert service.http.post(job["urls"]["retry"]).json()["id"] not in (retried["id"], job["id"])


@pytest.mark.parametrize("end", ["canceled", "expired"])
def test_retry_of_a_job_that_was_ended_asks_what_was_not_answered(service: Service, end: str) -> None:
    items = [{"id": f"i{n}", "question": f"q{n}?", "context_id": "c"} for n in range(70)]
    job = service.http.post("/v1/jobs", json={"items": items, "contexts": {"c": "text"}, "expires_in_s": 500}).json()
    core = core_of(service)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim)[:1])
    if end == "canceled":
        service.http.post(job["urls"]["cancel"])
    else:
        service.bench.raw.zadd("cl:expiring", {job["id"]: 1})
        service.bench.upkeep.tend()
    core.commit(claim.lease, answered(claim)[1:])
    retried = service.http.post(job["urls"]["retry"]).json()
    assert retried["counts"]["total"] == 38
    assert [item[0] for item in questions_of(service)] == [f"i{n}" for n in range(32, 70)]
    assert retried["expires_at"] is None


def feed_all(service: Service) -> None:
    feeder = Feeder(service.bench.settings, service.bench.bell)
    for job in feeder.jobs():
        while feeder.feed(job):
            pass


@pytest.mark.parametrize("dropped", [0, 640])
def test_retry_of_a_job_of_lines_comes_from_its_file(service: Service, dropped: int) -> None:
    head = {"contexts": {"c": "shared"}, "metadata": {"a": "b"}}
    body = lines(998, head) + b"\n" + orjson.dumps({"id": "s", "question": "s?", "context_id": "c"}) + b"\n"
    job = service.http.post("/v1/jobs", content=body, headers=LINES).json()
    feed_all(service)
    fail_some(service, {5, 700, 998})
    feed_all(service)
    assert not service.bench.raw.exists(f"cl:in:{{{job['id']}}}")
    if dropped:
        assert service.http.delete(f"{job['urls']['results']}?before={dropped}").json()["results_from"] > 0
    retried = service.http.post(job["urls"]["retry"]).json()
    assert (retried["counts"]["total"], retried["metadata"]) == (3, {"a": "b"})
    assert len(list(service.bench.settings.files_root.glob("job_*"))) == 2
    feed_all(service)
    assert questions_of(service) == [
        ("i5", "Who wrote 5?", "Ada wrote it."), ("i700", "Who wrote 700?", "Ada wrote it."), ("s", "s?", "shared"),
    ]  # fmt: skip
    feed_all(service)
    assert [path.stem for path in service.bench.settings.files_root.glob("job_*")] == [job["id"]]


def test_lines_that_were_never_fed_can_be_retried_and_lost_ones_are_told(service: Service) -> None:
    job = service.http.post("/v1/jobs", content=lines(300), headers=LINES).json()
    service.http.post(job["urls"]["cancel"])
    feed_all(service)
    retried = service.http.post(job["urls"]["retry"]).json()
    assert retried["counts"]["total"] == 300
    service.http.delete(retried["urls"]["self"])
    feed_all(service)
    (service.bench.settings.files_root / f"{job['id']}.jsonl").unlink()
    assert code_of(service.http.post(job["urls"]["retry"]), 410) == "items_lost"
    assert list(service.bench.settings.files_root.glob("job_*")) == []


# The end


def test_deleted_job_is_gone_at_once_and_costs_the_fleet_nothing(service: Service) -> None:
    core = core_of(service)
    job = service.http.post("/v1/jobs", json={"items": [ONE] * 70}).json()
    claim = claimed(core)
    assert service.http.delete(job["urls"]["self"]).status_code == 204
    for path in (job["urls"]["self"], job["urls"]["results"]):
        assert code_of(service.http.get(path), 404) == "not_found"
    assert code_of(service.http.delete(job["urls"]["self"]), 404) == "not_found"
    assert core.commit(claim.lease, answered(claim)) == 0
    assert core.claim([VERSION], linger=False) is None
    assert service.bench.waiting() == {}
    assert not service.bench.raw.keys(f"*{job['id']}*")
    assert not service.bench.raw.exists("cl:keeping", "cl:index:public", "cl:jobs", "cl:open:1")


def test_job_that_is_kept_no_longer_is_gone_not_unknown(guarded: Service) -> None:
    job = submit(guarded, keep_s=600)
    answer_all(core_of(guarded))
    done = guarded.http.get(job["urls"]["self"]).json()
    assert done["finished_at"] < done["kept_until"]
    raw = guarded.bench.raw
    assert 0 < raw.ttl(f"cl:job:{{{job['id']}}}") <= 600
    assert guarded.bench.upkeep.forget() == 0
    raw.delete(f"cl:job:{{{job['id']}}}")
    assert code_of(guarded.http.get(job["urls"]["self"]), 410) == "job_expired"
    raw.zadd("cl:keeping", {f"public:{job['id']}": 1})
    assert guarded.bench.upkeep.forget() == 1
    for path in (job["urls"]["self"], job["urls"]["results"]):
        assert code_of(guarded.http.get(path), 410) == "job_expired"
    for request in ("cancel", "retry"):
        assert code_of(guarded.http.post(job["urls"][request]), 410) == "job_expired"
    assert code_of(guarded.http.get(job["urls"]["self"], headers=as_owner("other")), 404) == "not_found"
    assert code_of(guarded.http.get(f"/v1/jobs/{new_job_id()}"), 404) == "not_found"
    assert guarded.http.get("/v1/jobs").json()["data"] == []


def test_job_may_not_be_kept_for_longer_than_the_service_keeps_jobs(service: Service) -> None:
    body = ONE | {"keep_s": service.bench.settings.results_ttl_s + 1}
    assert code_of(service.http.post("/v1/jobs", json=body), 422) == "invalid_input"


def test_end_of_a_job_is_told_to_those_who_wait_for_it_alone(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.jobs.POLL_S", 600.0)
    raw, core, wait = service.bench.raw, LoneCore(service.bench.settings, "a/0"), {"Prefer": "wait=60"}
    [listener] = eventually(lambda: raw.pubsub_channels("cl:done:*"))
    told: dict[str, str] = {}
    with raw.pubsub() as channel, ThreadPoolExecutor(1) as threads:
        channel.psubscribe(**{"cl:done:*": lambda message: told.update({message["channel"]: message["data"]})})
        asked = threads.submit(service.http.post, "/v1/jobs", json=ONE, headers=wait)
        eventually(service.bench.waiting)
        claim = claimed(core)
        core.commit(claim.lease, answered(claim))
        job = asked.result().json()
        own = f"cl:done:{job['id']}"
        eventually(lambda: (channel.get_message(timeout=1), len(told) == 2)[1])
        assert told.keys() == {own, listener}
        assert told[own] == job["id"]
        assert re.fullmatch(rf'{job["id"]} \[.*\]\n\[{{"index":0,.*', told[listener])
        late = service.http.post("/v1/jobs", json=ONE).json()["id"]
        asked = threads.submit(service.http.get, f"/v1/jobs/{late}", headers=wait)
        eventually(lambda: raw.pubsub_numsub(f"cl:done:{late}")[0][1])
        claim = claimed(core)
        core.commit(claim.lease, answered(claim))
        assert asked.result().json()["status"] == "succeeded"
        eventually(lambda: raw.pubsub_channels("cl:done:*") == [listener])
