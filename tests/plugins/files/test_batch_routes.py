"""Batches over HTTP before any keeper has seen them: taken in, listed, canceled, their owner's alone."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient

from tests.plugins.files.test_files import ALICE, BOB, LINES, upload


def create(api: TestClient, headers: dict | None = None, **changes: Any) -> Any:
    file = upload(api, LINES, headers=headers).json()["id"]
    body = {"input_file_id": file, "endpoint": "/v1/answers", "completion_window": "24h"} | changes
    return api.post("/v1/batches", json=body, headers=headers)


def test_batch_is_taken_in_and_stands_as_openais_clients_expect(api: TestClient, raw: redis.Redis) -> None:
    made = create(api, metadata={"run": "7"}, completion_window="90s")
    assert made.status_code == 200
    batch = made.json()
    assert (batch["object"], batch["status"], batch["metadata"]) == ("batch", "validating", {"run": "7"})
    assert batch["expires_at"] - batch["created_at"] in (90, 91)
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert api.get(f"/v1/batches/{batch['id']}").json() == batch
    assert raw.zrange("cl:batching", 0, -1) == [batch["id"]]
    canceled = api.post(f"/v1/batches/{batch['id']}/cancel").json()
    assert canceled["status"] == "cancelling"
    assert api.post(f"/v1/batches/{batch['id']}/cancel").json() == canceled


def test_pages_of_batches_are_newest_first_and_the_owners_alone(api_of_two: TestClient) -> None:
    api = api_of_two
    made = [create(api, ALICE).json()["id"] for _ in range(3)]
    first = api.get("/v1/batches", params={"limit": 2}, headers=ALICE).json()
    rest = api.get("/v1/batches", params={"limit": 2, "after": first["last_id"]}, headers=ALICE).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert sorted(each["id"] for each in first["data"] + rest["data"]) == sorted(made)
    assert api.get("/v1/batches", headers=BOB).json()["data"] == []
    assert api.get(f"/v1/batches/{made[0]}", headers=BOB).status_code == 404
    assert api.post(f"/v1/batches/{made[0]}/cancel", headers=BOB).status_code == 404
    assert api.get("/v1/batches", params={"after": "x"}, headers=ALICE).status_code == 422


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"endpoint": "/v1/chat/completions"}, 422, "'/v1/embeddings'"),
        ({"completion_window": "soon"}, 422, "24h"),
        ({"input_file_id": "file_none"}, 404, "no file"),
        ({"metadata": {"k": "x" * 513}}, 422, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 422, "3600"),
        ({"color": "red"}, 422, "color"),
        ({"webhook": {"url": "https://10.0.0.1/hook"}}, 422, "CORELANE_WEBHOOK_SECRET"),
        ({"webhook": {"url": "ftp://example.com"}}, 422, "webhook.url"),
        ({"webhook": {"url": "https://example.com", "events": ["job.completed"]}}, 422, "batch.completed"),
    ],
)
def test_batch_that_cannot_be_is_refused(api: TestClient, changes: dict, status: int, said: str) -> None:
    refused = create(api, **changes)
    assert refused.status_code == status
    assert said in str(refused.json())
    assert refused.json()["error"]["message"] == refused.json()["detail"]
    assert api.get("/v1/batches").json()["data"] == []


class TestIdempotencyKey:
    KEY = ALICE | {"Idempotency-Key": "monday's run"}

    def ask(self, api: TestClient, file: str, window: str = "24h", headers: dict = KEY) -> Any:
        body = {"input_file_id": file, "endpoint": "/v1/answers", "completion_window": window}
        return api.post("/v1/batches", json=body, headers=headers)

    def test_of_twenty_posts_at_once_one_makes_the_batch(self, api: TestClient, raw: redis.Redis) -> None:
        file = upload(api, LINES, headers=ALICE).json()["id"]
        with ThreadPoolExecutor(20) as pool:
            made = list(pool.map(lambda _: self.ask(api, file), range(20)))
        assert {each.status_code for each in made} == {200}
        assert len({each.json()["id"] for each in made}) == 1
        assert sum("Idempotent-Replayed" not in each.headers for each in made) == 1
        assert raw.zcard("cl:batching") == 1

    def test_another_body_is_refused_and_another_owner_has_keys_of_their_own(self, api_of_two: TestClient) -> None:
        api = api_of_two
        file = upload(api, LINES, headers=ALICE).json()["id"]
        made = self.ask(api, file)
        refused = self.ask(api, file, "1h")
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
        job = api.post("/v1/jobs", json={"question": "q", "context": "c"}, headers=self.KEY)
        assert job.json()["code"] == "idempotency_key_reused"
        theirs = upload(api, LINES, headers=BOB).json()["id"]
        other = self.ask(api, theirs, headers=BOB | {"Idempotency-Key": "monday's run"})
        assert other.json()["id"] != made.json()["id"]

    def test_request_that_made_nothing_binds_no_key(self, api: TestClient) -> None:
        assert self.ask(api, "file_none").status_code == 404
        assert self.ask(api, upload(api, LINES, headers=ALICE).json()["id"]).status_code == 200

    def test_batch_is_found_again_without_its_file_and_never_made_twice(
        self, api: TestClient, raw: redis.Redis
    ) -> None:
        file = upload(api, LINES, headers=ALICE).json()["id"]
        made = self.ask(api, file).json()
        api.delete(f"/v1/files/{file}", headers=ALICE)
        assert self.ask(api, file).json() == made
        raw.delete(f"cl:batch:{{{made['id']}}}")
        gone = self.ask(api, file)
        assert gone.status_code == 404
        assert "new key" in gone.json()["detail"]
        assert not raw.exists(f"cl:batch:{{{made['id']}}}")
