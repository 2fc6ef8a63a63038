"""Bulk retry and cancel, failed items as a list of their own, and the audit, over HTTP."""

from typing import Any

import orjson
import pytest

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import Overloaded
from corelane.plugins.console import bulk, failed_items
from corelane.store.dispatch import SliceResults
from corelane.submitting import retries
from corelane.tasks.results import failed_result
from tests.api.office import ANN, BOB, ONE, ONLY_ADMIN, OPS, READER, SENDER, Office
from tests.corelane.store_bench import answer_all, claimed
from tests.tools.deliveries import schedule


def act(office: Office, who: str, action: str, *, after: str | None = None, dry: bool = False, **wanted: Any) -> Any:
    """Do one step of a bulk action."""
    body = {"action": action, "filter": wanted, "dry_run": dry} | ({"after": after} if after else {})
    response = office.call(who, "POST", "/v1/jobs/bulk", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def reasons(result: Any) -> dict[str, int]:
    return {each["code"]: each["count"] for each in result["skipped"]}


def test_bulk_retry_says_in_a_dry_run_what_it_then_does_once(office: Office) -> None:
    failed = [office.submit(ANN) for _ in range(5)]
    office.fail_all()
    succeeded = office.submit(ANN)
    answer_all(office.bench.core("a/0"))
    queued = office.submit(ANN)
    office.bench.raw.delete(f"cl:in:{{{failed[0]}}}")
    before = sorted(office.bench.raw.scan_iter("cl:job:*"))
    dry = act(office, ANN, "retry", dry=True, model="tiny")
    assert (dry["matched"], dry["done"], dry["has_more"], dry["next"]) == (7, 4, False, None)
    assert reasons(dry) == {"items_lost": 1, "nothing_to_retry": 1, "not_final": 1}
    assert dry["skipped"][0]["detail"]
    assert [job["id"] for job in dry["jobs"]] == failed[:0:-1]
    assert sorted(office.bench.raw.scan_iter("cl:job:*")) == before
    assert office.audited() == []
    done = act(office, ANN, "retry", model="tiny")
    assert (done["matched"], done["done"], reasons(done)) == (7, 4, reasons(dry))
    assert [job["id"] for job in done["jobs"]] == failed[:0:-1]
    retries = [job["retry"] for job in done["jobs"]]
    assert sorted(office.found(ANN, status="queued")) == sorted([*retries, queued])
    again = act(office, ANN, "retry", model="tiny", status=["failed"])
    assert (again["done"], reasons(again)) == (0, {"already_retried": 4, "items_lost": 1})
    assert sorted(office.found(ANN, status="queued")) == sorted([*retries, queued])
    assert succeeded not in retries
    assert office.audited() == [
        (ANN, "jobs.retry", '{"model":"tiny"}', "4 of 7 jobs; 1 not_final, 1 nothing_to_retry, 1 items_lost")
    ]


def test_bulk_cancel_goes_through_all_in_steps(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP_JOBS", 3)
    jobs = [office.submit(ANN) for _ in range(7)]
    office.call(ANN, "POST", f"/v1/jobs/{jobs[3]}/cancel")
    dry, after = 0, None
    while True:
        step = act(office, ANN, "cancel", dry=True, after=after, model="tiny")
        dry, after = dry + step["done"], step["next"]
        if not step["has_more"]:
            break
    steps = [act(office, ANN, "cancel", model="tiny")]
    while steps[-1]["has_more"]:
        steps.append(act(office, ANN, "cancel", after=steps[-1]["next"], model="tiny"))
    assert dry == sum(step["done"] for step in steps) == 6
    assert [step["matched"] for step in steps] == [3, 3, 1]
    assert reasons(steps[1]) == {"already_final": 1}
    assert office.found(ANN, status="canceled") == jobs[::-1]
    assert office.found(ANN, status="queued") == []
    assert act(office, ANN, "cancel", model="tiny")["done"] == 0


def test_a_busy_service_ends_a_step_early_and_refuses_one_that_could_do_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [office.submit(ANN) for _ in range(3)]
    office.fail_all()
    made: list[str] = []

    async def one_then_busy(*given: Any) -> Any:
        if len(made) == 1:
            raise Overloaded("too much waits", 7)
        made.append("one")
        return await retries.retry(*given)

    monkeypatch.setattr(bulk, "retry", one_then_busy)
    step = act(office, ANN, "retry", model="tiny")
    assert (step["done"], step["matched"], step["next"]) == (1, 1, jobs[2])
    sent = {"action": "retry", "filter": {"model": "tiny"}, "after": step["next"]}
    refused = office.call(ANN, "POST", "/v1/jobs/bulk", json=sent)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
    monkeypatch.setattr(bulk, "retry", retries.retry)
    assert [job["id"] for job in act(office, ANN, "retry", model="tiny", after=step["next"])["jobs"]] == jobs[1::-1]


def test_bulk_is_for_keys_that_may_submit_and_for_others_jobs_of_admins(office: Office) -> None:
    job = office.submit(BOB)

    def code(who: str, **wanted: Any) -> tuple[int, str]:
        sent = {"action": "cancel", "filter": wanted, "dry_run": False}
        response = office.call(who, "POST", "/v1/jobs/bulk", json=sent)
        return response.status_code, response.json().get("code", "")

    assert code(READER, model="tiny") == code(ONLY_ADMIN, model="tiny") == (403, "forbidden")
    assert code(ANN, model="tiny", owner=BOB) == code(ANN, model="tiny", owner="*") == (403, "forbidden")
    assert code(ANN) == code(OPS, owner="*") == (422, "invalid_input")
    for odd in ({"labels": ["x"]}, {"status": ["odd"]}, {"created_after": "soon"}, {"failed_items": 3}):
        assert code(ANN, **odd)[0] == 422
    assert act(office, ANN, "cancel", model="tiny")["matched"] == 0
    assert act(office, OPS, "cancel", model="tiny")["matched"] == 0
    assert [each["id"] for each in act(office, OPS, "cancel", model="tiny", owner="*")["jobs"]] == [job]
    assert office.audited() == [(OPS, "jobs.cancel", '{"model":"tiny","owner":"*"}', "1 of 1 jobs")]


def fail_some(office: Office, codes: dict[int, str]) -> None:
    """Answer all that waits; items of these indexes fail, each with its own code."""
    core = office.bench.core("a/0")
    while office.bench.waiting():
        claim = claimed(core)
        outcomes = []
        for ref, _ in claim.refs:
            indexes = range(ref.first, ref.first + ref.count)
            ok = {"status": "succeeded", "error": None}
            results = [
                failed_result(DEFAULT_TASK, n, f"i{n}", codes[n], f"because <b>{n}</b>")
                if n in codes
                else {"index": n, "id": f"i{n}"} | ok
                for n in indexes
            ]
            outcomes.append(SliceResults(ref, results))
        core.commit(claim.lease, outcomes)


def failed_of(office: Office, who: str, limit: int = 100, **params: Any) -> list[tuple[str, int, str]]:
    """Return all failed items, page by page."""
    items: list[tuple[str, int, str]] = []
    after = None
    while True:
        sent = params | {"limit": limit} | ({"after": after} if after else {})
        response = office.call(who, "GET", "/v1/failed-items", params=sent)
        assert response.status_code == 200, response.text
        page = response.json()
        assert len(page["data"]) <= limit
        items += [(each["job"], each["index"], each["error"]["code"]) for each in page["data"]]
        if not page["has_more"]:
            assert page["next"] is None
            return items
        after = page["next"]


@pytest.mark.parametrize("notes", [True, False], ids=["noted", "of an earlier version"])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_failed_items_are_a_list_of_their_own(
    office: Office, monkeypatch: pytest.MonkeyPatch, notes: bool, limit: int
) -> None:
    monkeypatch.setattr(failed_items, "TRIP_SLICES", 1)
    rows = [{"id": f"i{n}"} | ONE for n in range(200)]
    first = office.call(ANN, "POST", "/v1/jobs", json={"items": rows}).json()["id"]
    fail_some(office, {3: "too_long", 90: "worker_lost", 150: "worker_lost"})
    second = office.call(ANN, "PUT", "/v1/jobs/mine", json={"items": rows[:4]}).json()["id"]
    fail_some(office, {3: "too_long"})
    office.submit(ANN)
    fail_some(office, {})
    if not notes:
        for key in office.bench.raw.scan_iter("cl:failures:*"):
            office.bench.raw.delete(key)
    expected = [
        (second, 3, "too_long"),
        (first, 3, "too_long"),
        (first, 90, "worker_lost"),
        (first, 150, "worker_lost"),
    ]
    assert failed_of(office, ANN, limit) == expected
    assert failed_of(office, ANN, limit, code="worker_lost") == expected[2:]
    assert failed_of(office, ANN, limit, id=first) == expected[1:]
    assert failed_of(office, ANN, limit, q="mine") == expected[:1]
    assert failed_of(office, ANN, limit, code="none") == failed_of(office, BOB, limit) == []
    assert failed_of(office, OPS, limit, owner="*", status="succeeded") == expected
    [page] = [office.call(ANN, "GET", "/v1/failed-items", params={"limit": 1}).json()["data"]]
    assert (page[0]["id"], page[0]["job_name"], page[0]["error"]["detail"]) == ("i3", "mine", "because <b>3</b>")
    office.call(ANN, "DELETE", f"/v1/jobs/{second}")
    assert failed_of(office, ANN, limit, after=f"{second}.3") == failed_of(office, ANN, limit) == expected[1:]


def test_a_page_of_failed_items_reads_few_results(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_items, "MAX_RESULTS", 100)
    for _ in range(5):
        office.submit(ANN)
    fail_some(office, {0: "odd"})
    page = office.call(ANN, "GET", "/v1/failed-items", params={"code": "rare"}).json()
    assert (page["data"], page["has_more"]) == ([], True)
    assert failed_of(office, ANN, code="rare") == []
    assert len(failed_of(office, ANN, code="odd")) == 5
    for odd in ("x", "job_.1", "job_0.x", f"{office.submit(ANN)}", "%"):
        assert office.call(ANN, "GET", "/v1/failed-items", params={"after": odd}).status_code == 422


def test_items_that_failed_with_their_job_are_listed_too(office: Office) -> None:
    job = office.submit(ANN)
    reason = orjson.dumps({"code": "items_lost", "detail": "gone"}).decode()
    office.bench.upkeep._link.run("fail", job=job, ttl=60, error=reason)
    assert failed_of(office, ANN) == [(job, 0, "items_lost")]


def test_steering_what_others_own_is_in_the_audit(office: Office) -> None:
    jobs = [office.submit(BOB) for _ in range(3)]
    own = office.submit(OPS)
    for who, job in ((BOB, jobs[0]), (OPS, own), (OPS, jobs[1])):
        office.call(who, "POST", f"/v1/jobs/{job}/cancel")
    retried = office.call(OPS, "POST", f"/v1/jobs/{jobs[1]}/retry").json()["id"]
    office.call(OPS, "POST", f"/v1/jobs/{jobs[1]}/retry")
    office.call(OPS, "DELETE", f"/v1/jobs/{jobs[2]}")
    version = "tiny@1"
    assert office.call(OPS, "PUT", "/v1/aliases/latest", json={"version": version}).status_code == 200
    assert office.call(OPS, "DELETE", "/v1/aliases/latest").status_code == 200
    assert office.call(OPS, "POST", "/v1/cores/all/models", json={"model": version}).status_code == 202
    assert office.call(OPS, "DELETE", f"/v1/cores/all/models/{version}?force=true").status_code == 202
    delivery = schedule(office.bench.settings, "job.completed", "job_0x", BOB, "https://a.test/", {})
    assert office.call(OPS, "POST", f"/v1/deliveries/{delivery}/redeliver").status_code == 202
    assert office.audited() == [
        (OPS, "job.cancel", jobs[1], f"of {BOB}"),
        (OPS, "job.retry", jobs[1], f"of {BOB}, as {retried}"),
        (OPS, "job.delete", jobs[2], f"of {BOB}"),
        (OPS, "alias.set", "latest", f"{version} 1"),
        (OPS, "alias.unset", "latest", ""),
        (OPS, "model.load", version, "on all"),
        (OPS, "model.unload", version, "from all, forced"),
        (OPS, "delivery.redeliver", delivery, ""),
    ]


def test_key_that_may_not_read_sees_no_results_of_a_final_job(office: Office) -> None:
    job = office.submit(SENDER)
    office.fail_all()
    retried = office.call(SENDER, "POST", f"/v1/jobs/{job}/retry").json()["id"]
    answer_all(office.bench.core("a/0"))
    for path in (f"{job}/cancel", f"{retried}/cancel", f"{job}/retry"):
        response = office.call(SENDER, "POST", f"/v1/jobs/{path}")
        assert response.status_code == 200
        assert response.json().get("results") is None
