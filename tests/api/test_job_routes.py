"""What must hold on every route of a job, whoever wrote it."""

import base64
from ipaddress import ip_network
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from corelane.settings import Settings
from corelane.store.jobs.store import JobStore
from corelane.webhooks import addresses
from tests.api.conftest import Service
from tests.api.test_jobs import ONE, core_of
from tests.corelane.store_bench import answer_all
from tests.tools.keys import as_owner

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    changes = {"webhook_secret": SecretStr(SECRET), "webhook_allowed_networks": (ip_network("127.0.0.0/8"),)}
    return settings.model_copy(update=changes)


def routes_of_a_job(service: Service) -> list[tuple[str, str]]:
    document: dict[str, Any] = service.http.get("/openapi.json").json()
    found = [
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if "{job_id}" in path and method != "put"
    ]
    assert len(found) >= 8
    return sorted(found, key=lambda route: route == ("DELETE", "/v1/jobs/{job_id}"))


def test_every_route_takes_the_owners_name_of_a_job_and_is_closed_to_all_others(guarded: Service) -> None:
    job = guarded.http.put("/v1/jobs/report", json=ONE).json()
    answer_all(core_of(guarded))
    routes = routes_of_a_job(guarded)
    for key, names in (("other", ("report", job["id"])), ("public", ("report",))):
        for method, path in routes:
            for name in names:
                url = path.replace("{job_id}", name)
                params = {"before": 1} if (method, path) == ("DELETE", "/v1/jobs/{job_id}/results") else {}
                response = guarded.http.request(method, url, params=params, headers=as_owner(key))
                if key == "other":
                    assert (response.status_code, response.json()["code"]) == (404, "not_found"), (method, url)
                elif path.endswith("/retry"):
                    assert response.json()["code"] == "nothing_to_retry"
                else:
                    assert response.status_code in (200, 204), (method, url, response.text)
    assert guarded.http.get("/v1/jobs/report").status_code == 404


def test_retry_tells_the_same_webhook_the_same_events_under_its_own_requests_id(service: Service) -> None:
    webhook = {"url": "http://127.0.0.1:9/hook", "events": ["job.canceled", "job.running"]}
    job = service.http.post("/v1/jobs", json=ONE | {"webhook": webhook}, headers={"X-Request-ID": "first"}).json()
    service.http.post(job["urls"]["cancel"])
    again = service.http.post(job["urls"]["retry"], headers={"X-Request-ID": "second"}).json()
    service.http.post(again["urls"]["cancel"])
    for each, request_id in ((job, "first"), (again, "second")):
        [delivery] = service.http.get(each["urls"]["deliveries"]).json()["data"]
        assert (delivery["event"], delivery["url"]) == ("job.canceled", webhook["url"])
        kept = service.bench.raw.hmget(f"cl:job:{{{each['id']}}}", "webhook_events", "request_id")
        assert kept == ["job.canceled,job.running", request_id]


def test_deleted_job_leaves_no_webhook_and_no_log(service: Service) -> None:
    webhook = {"url": "http://127.0.0.1:9/hook", "events": ["job.completed", "job.canceled"]}
    job = service.http.post("/v1/jobs", json=ONE | {"webhook": webhook}).json()
    assert service.http.delete(job["urls"]["self"]).status_code == 204
    assert service.http.delete(job["urls"]["self"]).status_code == 404
    tail = job["id"].removeprefix("job_")
    for event in ("completed", "canceled"):
        assert service.http.get(f"/v1/deliveries/evt_{tail}_{event}").status_code == 404
    assert service.bench.raw.keys(f"cl:*{{{job['id']}}}*") == []
    assert not service.bench.raw.exists(f"cl:deliveries:{job['id']}")


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_job_is_admitted_once_and_its_webhooks_host_resolved_once(
    service: Service, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    steps: list[str] = []
    admit, check = JobStore.admit, addresses.check_address

    def admitting(self: JobStore, *args: Any) -> Any:
        steps.append("admitted")
        return admit(self, *args)

    def checking(*args: Any) -> None:
        steps.append("resolved")
        check(*args)

    monkeypatch.setattr(JobStore, "admit", admitting)
    monkeypatch.setattr(addresses, "check_address", checking)
    head = {"webhook": {"url": "http://127.0.0.1:9/hook"}}
    parts = [head | ONE] if media_type == "application/json" else [head, ONE]
    body = b"\n".join(map(orjson.dumps, parts))
    response = service.http.post("/v1/jobs", content=body, headers={"Content-Type": media_type})
    assert response.status_code == 202, response.text
    assert steps == ["resolved", "admitted"]
