"""Nothing that callers or cores cause stays in Redis for good: a few documented keys are left once times are over."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.plugins.files.batches.task import run_batches
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.deliveries.sending import Attempt
from tests.corelane.store_bench import answer_all, answered, claimed
from tests.plugins.files.batch_bench import BatchBench, line
from tests.plugins.files.test_files import upload
from tests.tools.deliveries import Deliveries

ONE = {"question": "Who wrote it?", "context": "Ada wrote it."}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

#: Sorted sets of times: what they hold is due once these are over.
TIMED = (
    "cl:keeping",
    "cl:retiring",
    "cl:cores",
    "cl:dead",
    "cl:leases",
    "cl:expiring",
    "cl:circuits",
    "cl:contexts_due",
)

#: Of Celery and kombu.
NOT_OURS = re.compile(r"_kombu\.|unacked|core\.|keeper|deliveries|celery")


def keys_that_stay() -> list[re.Pattern[str]]:
    """Return the patterns of keys that are left when nothing else is."""
    return [re.compile(re.escape(key).replace("%s", ".+")) for key in keys.all_keys().values() if key.stays]


def let_time_pass(raw: Any) -> None:
    """End the time of all that has one."""
    for key in list(raw.scan_iter(count=1000)):
        if raw.ttl(key) >= 0:
            raw.delete(key)
        elif key.startswith((*TIMED, "cl:holders:")):
            raw.zadd(key, dict.fromkeys(raw.zrange(key, 0, -1), 1))
        elif key.startswith("cl:context:"):
            raw.hset(key, "expires_ms", 1)


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> BatchBench:
    changes = {"webhook_secret": SECRET, "webhook_allowed_networks": "127.0.0.0/8", "submit_rate": "10000/second"}
    return BatchBench(Settings(**settings.model_dump(exclude_unset=True) | changes), raw, bell)


@pytest.fixture
def api(bench: BatchBench) -> Iterator[TestClient]:
    with TestClient(create_app(bench.settings), raise_server_exceptions=False) as client:
        yield client


def keep(bench: BatchBench) -> None:
    """Do the work of keepers, round after round."""
    for _ in range(3):
        bench.upkeep.return_lapsed()
        bench.upkeep.tend()
        bench.upkeep.forget()
        bench.upkeep.prune()
        bench.feed()
        run_batches(bench.settings, bench.bell, lambda: False)


def post_deliveries(bench: BatchBench) -> None:
    """One delivery arrives, one is given up, the others fail and wait."""
    deliveries = Deliveries(bench.settings)
    for n, delivery in enumerate(deliveries.take(100)):
        outcome, pause_s = ("delivered", 0.0) if n == 0 else ("failed", None if n == 1 else 3600.0)
        well = outcome == "delivered"
        attempt = Attempt(0, 200 if well else 500, 1, None, "")
        deliveries.report(delivery, outcome, attempt, is_host_well=well, pause_s=pause_s, rest_s=60, window_s=1e6)


def run_all_kinds(bench: BatchBench, api: TestClient) -> None:
    """Jobs of all kinds and ends, files, batches, webhooks, cores that come and go."""

    def post(path: str, **sent: Any) -> Any:
        response = api.post(path, **sent)
        assert response.status_code in (200, 202), response.text
        return response.json()

    core = bench.core("a/0")
    hook = {"webhook": {"url": "http://127.0.0.1:9/hook", "events": ["job.running", "job.completed"]}}
    post("/v1/jobs", json=ONE)
    upload(api)
    once = [post("/v1/jobs", json=ONE, headers={"Idempotency-Key": "k"})["id"] for _ in range(2)]
    assert once[0] == once[1]
    api.put("/v1/jobs/mine", json=ONE)
    hooked = [post("/v1/jobs", json=ONE | hook | {"priority": each}) for each in ("high", "low")]
    rows = b"\n".join(orjson.dumps(ONE | {"id": f"i{n}"}) for n in range(300))
    sent_as_lines = post("/v1/jobs", content=rows, headers={"Content-Type": "application/x-ndjson"})
    shared = {"items": [{"question": f"q{n}", "context_id": "c"} for n in range(80)], "contexts": {"c": "ada"}}
    failing = post("/v1/jobs", json=shared)["id"]
    batch = bench.begin(b"".join(line(f"l{n}") for n in range(50)))
    bench.steps()
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    post(f"/v1/jobs/{sent_as_lines['id']}/cancel")
    bench.feed()
    answer_all(core)
    bench.steps()
    assert bench.batch(batch).status == "completed"
    api.post(f"/v1/jobs/{failing}/retry")
    api.delete(hooked[0]["urls"]["self"])
    post_deliveries(bench)
    claimed(bench.core("gone/0"))
    abandoned = [bench.submit(70, version="gone@1", owner=owner) for owner in ("public", "someone")]
    bench.submit(3, version="gone@1", expires_in_s=3600)
    assert bench.with_store(lambda jobs: jobs.delete(abandoned[0]))
    bench.cancel(abandoned[1])
    bench.with_store(lambda jobs: jobs.get(failing))


def test_only_documented_keys_are_left_once_all_times_are_over(bench: BatchBench, api: TestClient) -> None:
    run_all_kinds(bench, api)
    for _ in range(3):
        let_time_pass(bench.raw)
        keep(bench)
        answer_all(bench.core("b/0"))
    let_time_pass(bench.raw)
    keep(bench)
    for key in bench.raw.scan_iter("cl:*"):
        if bench.raw.ttl(key) >= 0:
            bench.raw.delete(key)
    stays = keys_that_stay()
    left = [key for key in bench.raw.scan_iter() if not NOT_OURS.match(key)]
    assert [key for key in left if not any(pattern.fullmatch(key) for pattern in stays)] == []
    assert len(left) < 20
