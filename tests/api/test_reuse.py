"""Equal questions over HTTP: reused answers, requests that leave them out, and the cache that is cleared."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from corelane.settings import Settings
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import VERSION, LoneCore, answered, claimed

ONE = {"question": "Who wrote it?", "context": "Ada wrote it."}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"reuse": True})


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Service]:
    yield from run_service(settings.model_copy(update={"cache_bytes": 1_000_000}), raw, bell)


@pytest.fixture
def core(service: Service) -> LoneCore:
    return service.bench.core("a/0")


def post(service: Service, headers: dict[str, str] | None = None, **body: Any) -> tuple[int, dict[str, Any]]:
    response = service.http.post("/v1/jobs", json=ONE | body, headers=headers)
    return response.status_code, response.json()


def serve(service: Service, core: LoneCore) -> None:
    """Have a question computed, and its answer kept."""
    assert post(service)[0] == 202
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))


def test_equal_question_is_final_at_once(service: Service, core: LoneCore) -> None:
    serve(service, core)
    status, job = post(service, id="mine")
    assert (status, job["status"], job["usage"]) == (
        200,
        "succeeded",
        {"items": 0, "windows": 0, "tokens": 0, "core_s": 0.0, "cost": None, "reused": 1},
    )
    assert [(result["id"], result["reused"]) for result in job["results"]] == [("mine", True)]
    shared = {"question": None, "context": None, "contexts": {"c": ONE["context"]}}
    status, job = post(service, items=[{"question": ONE["question"], "context_id": "c"}], **shared)
    assert (status, job["counts"]["succeeded"]) == (200, 1)
    answer = service.http.post("/v1/answers", json=ONE)
    assert (answer.status_code, answer.json()["reused"]) == (200, True)


@pytest.mark.parametrize(
    "given", [{"headers": {"Cache-Control": "no-store"}}, {"headers": {"Cache-Control": "no-cache"}}, {"reuse": False}]
)
def test_request_leaves_reuse_out(service: Service, core: LoneCore, given: dict[str, Any]) -> None:
    serve(service, core)
    status, job = post(service, **given)
    assert (status, job["status"]) == (202, "queued")
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    retried = service.http.post(job["urls"]["retry"]).json()
    assert retried["status"] == "queued"
    assert claimed(core).jobs == [retried["id"]]


def test_answers_route_leaves_reuse_out(service: Service, core: LoneCore) -> None:
    serve(service, core)
    for given in ({"json": ONE | {"reuse": False}}, {"json": ONE, "headers": {"Cache-Control": "no-store"}}):
        assert service.http.post("/v1/answers?wait=0", **given).status_code == 202
        assert claimed(core).refs


def test_cache_is_cleared(service: Service, core: LoneCore) -> None:
    serve(service, core)
    assert service.http.delete("/v1/cache").status_code == 204
    assert not service.bench.raw.exists("cl:cached", "cl:cache:public", "cl:cache_bytes")
    assert post(service)[0] == 202
    [entry] = service.http.get("/v1/audit").json()["data"]
    assert (entry["action"], entry["subject"]) == ("cache.clear", "public")
    assert core.claim([VERSION], linger=False) is not None
