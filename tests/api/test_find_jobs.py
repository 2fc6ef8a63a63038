"""Jobs found over HTTP: by every parameter, by nobody else, and whatever is asked for."""

from typing import Any

import redis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from api.app import create_app
from corelane.domain.ids import new_job_id
from corelane.settings import Settings
from tests.api.office import ANN, BOB, ONE, ONLY_ADMIN, OPS, READER, SENDER, Office
from tests.corelane.store_bench import VERSION, answer_all
from tests.tools.deliveries import schedule


def test_every_parameter_finds_its_jobs(office: Office) -> None:
    failed = office.submit(ANN)
    office.fail_all()
    named = office.call(ANN, "PUT", "/v1/jobs/report-7", json=ONE).json()["id"]
    answer_all(office.bench.core("a/0"))
    queued = office.submit(ANN)
    job = office.call(ANN, "GET", f"/v1/jobs/{queued}").json()
    for params in ({}, {"model": VERSION}, {"model": VERSION.partition("@")[0]}):
        assert office.found(ANN, **params) == [queued, named, failed]
    assert office.found(ANN, id=[failed, queued]) == office.found(ANN, status=["queued", "failed"]) == [queued, failed]
    assert office.found(ANN, created_after=job["created_at"]) == [queued]
    assert office.found(ANN, created_before=job["created_at"]) == [named, failed]
    for params in (
        {"model": "other"},
        {"created_after": "2999-01-01T00:00:00Z"},
        {"created_before": "0"},
    ):
        assert office.found(ANN, **params) == []
    assert office.found(ANN, failed_items="true") == office.found(ANN, status="failed") == [failed]
    for params in ({"q": "report-7"}, {"name": "report-7"}, {"q": named}):
        assert office.found(ANN, **params) == [named]
    assert office.found(ANN, q=queued[:20], status="queued") == [queued]
    page = office.call(
        ANN, "GET", "/v1/jobs", params={"status": ["queued", "failed"], "limit": 1, "failed_items": "false"}
    )
    assert "status=queued&status=failed" in page.headers["Link"]
    rest = office.call(ANN, "GET", page.headers["Link"][1:].partition(">")[0]).json()
    assert [job["id"] for job in rest["data"]] == [failed]


def test_only_an_admin_finds_and_steers_the_jobs_of_others(office: Office) -> None:
    anns, bobs = office.submit(ANN), office.submit(BOB)
    for who in (ANN, READER):
        for owner in (BOB, "*"):
            refused = office.call(who, "GET", "/v1/jobs", params={"owner": owner})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        for query in ({}, {"q": bobs}, {"status": "queued"}, {"owner": who}):
            assert bobs not in office.found(who, **query)
        assert office.call(who, "GET", f"/v1/jobs/{bobs}").status_code == 404
    assert office.call(ONLY_ADMIN, "GET", "/v1/jobs", params={"owner": "*"}).status_code == 403
    assert office.found(OPS) == []
    assert office.found(OPS, owner=BOB) == [bobs]
    assert office.found(OPS, owner="*", status="queued") == office.found(OPS, owner="*") == [bobs, anns]
    assert office.found(OPS, owner="nobody") == []
    listed = office.call(OPS, "GET", "/v1/jobs", params={"owner": "*"}).json()["data"]
    assert [job["owner"] for job in listed] == [BOB, ANN]
    assert office.call(OPS, "GET", f"/v1/jobs/{bobs}").json()["owner"] == BOB
    assert "owner" not in office.call(BOB, "GET", f"/v1/jobs/{bobs}").json()
    assert office.call(OPS, "GET", f"/v1/jobs/{bobs}").json()["id"] == bobs
    assert office.call(OPS, "POST", f"/v1/jobs/{bobs}/cancel").json()["status"] == "canceled"
    retried = office.call(OPS, "POST", f"/v1/jobs/{bobs}/retry").json()["id"]
    assert office.found(BOB) == [retried, bobs]


def test_where_keys_are_not_checked_nobody_asks_for_anothers_jobs(settings: Settings, raw: redis.Redis) -> None:
    with TestClient(create_app(settings)) as api:
        for owner in ("*", "public", "someone"):
            response = api.get("/v1/jobs", params={"owner": owner})
            assert response.status_code == (200 if owner == "public" else 403)


def test_steering_what_others_own_is_in_the_audit(office: Office) -> None:
    jobs = [office.submit(BOB) for _ in range(3)]
    own = office.submit(OPS)
    for who, job in ((BOB, jobs[0]), (OPS, own), (OPS, jobs[1])):
        office.call(who, "POST", f"/v1/jobs/{job}/cancel")
    retried = office.call(OPS, "POST", f"/v1/jobs/{jobs[1]}/retry").json()["id"]
    office.call(OPS, "POST", f"/v1/jobs/{jobs[1]}/retry")
    office.call(OPS, "DELETE", f"/v1/jobs/{jobs[2]}")
    version = "tiny@1"
    assert office.call(OPS, "PUT", "/v1/aliases/latest", json={"version": "tiny"}).status_code == 200
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
        for who, sees in ((SENDER, False), (OPS, True)):
            response = office.call(who, "POST", f"/v1/jobs/{path}")
            assert (response.status_code, bool(response.json().get("results"))) == (200, sees), (who, path)


odd = st.one_of(
    st.text(max_size=70),
    st.sampled_from(["*", "job_", "job_0", "\x00", "x job_", "l:x", "s:open", "f", "%s", "[", "(", "+", "-", " "]),
    st.builds(new_job_id, st.integers(0, 2**47)),
)


@given(
    query=st.fixed_dictionaries(
        {},
        optional={
            "q": odd,
            "name": odd,
            "model": odd,
            "status": st.lists(st.sampled_from(["queued", "running", "succeeded", "failed", "canceled", "expired"])),
            "failed_items": st.sampled_from(["true", "false", "1"]),
            "code": odd,
            "created_after": st.one_of(st.integers(-(10**6), 10**12), st.just("2026-11-22T10:00:00")),
            "created_before": st.integers(0, 10**11),
            "owner": odd,
            "after": odd,
            "limit": st.integers(1, 100),
        },
    )
)
@examples(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_whatever_is_asked_for_is_answered_or_refused_and_never_anothers(office: Office, query: dict[str, Any]) -> None:
    if not office.bench.raw.exists("cl:index:bob"):
        office.submit(BOB)
    response = office.call(ANN, "GET", "/v1/jobs", params=query)
    assert response.status_code in (200, 403, 422), response.text
    assert response.status_code != 200 or response.json()["data"] == []
