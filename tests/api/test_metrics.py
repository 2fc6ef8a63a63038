"""What an API process measures of its requests, and that it shows the figures of the whole service."""

import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.metrics.definitions import ALL, DELIVERIES, ITEMS, JOBS_ENDED, MODEL_LOADS, TOKENS
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.metrics import ProcessMetrics
from tests.corelane.store_bench import VERSION, Bench, answer_all

ONE = {"question": "Who wrote it?", "context": "Ada wrote it."}


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


def shown(api: TestClient) -> dict[str, float]:
    """Return the samples of a scrape, by their names and labels as they stand in the text."""
    lines = [line for line in api.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def requests(samples: dict[str, float]) -> dict[str, float]:
    """Return how many requests there were, by what stands between the braces."""
    start, end = "corelane_http_requests_total{", "}"
    return {name.removeprefix(start).removesuffix(end): n for name, n in samples.items() if name.startswith(start)}


def test_requests_are_counted_by_route_and_status_whatever_becomes_of_them(
    bench: Bench, api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.core("a/0")
    job = api.post("/v1/jobs", json=ONE).json()["id"]
    api.get(f"/v1/jobs/{job}")
    api.get("/v1/jobs/job_unknown")
    api.post("/v1/jobs", json={"question": 5})
    api.get("/nowhere/at/all")
    api.request("BREW", "/v1/jobs")
    api.get("/docs/swagger-ui.css")

    async def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("corelane.store.fleet.Fleet.cores", broken)
    assert api.get("/v1/cores").status_code == 500
    monkeypatch.undo()
    samples = shown(api)
    found = requests(samples)
    assert found['method="POST",route="/v1/jobs",status="202"'] == 1
    assert found['method="POST",route="/v1/jobs",status="422"'] == 1
    assert found['method="GET",route="/v1/jobs/{job_id}",status="200"'] == 1
    assert found['method="GET",route="/v1/jobs/{job_id}",status="404"'] == 1
    assert found['method="GET",route="other",status="404"'] == 1
    assert found['method="GET",route="/v1/cores",status="500"'] == 1
    assert sum(count for labels, count in found.items() if 'method="other"' in labels) == 1
    assert sum(found.values()) == 8
    timed = sum(n for name, n in samples.items() if name.startswith("corelane_http_request_seconds_count"))
    assert timed == 8
    assert samples['corelane_problems_total{code="internal"}'] == 1
    assert not [labels for labels in found if job in labels or "nowhere" in labels]


def test_every_api_shows_what_all_processes_did(settings: Settings, bench: Bench) -> None:
    core, other = bench.core("a/0"), ProcessMetrics("core")
    other.recorder.add(TOKENS, 640, VERSION)
    other.flush_over(Link(settings.redis_url))
    with TestClient(create_app(settings)) as one, TestClient(create_app(settings)) as another:
        one.post("/v1/jobs", json=ONE)
        another.post("/v1/jobs", json={"items": [ONE, ONE]})
        answer_all(core)
        shown(one)
        samples = shown(another)
        for name, value in {
            'corelane_jobs_submitted_total{version="tiny@1"}': 2,
            'corelane_items_total{outcome="succeeded",version="tiny@1"}': 3,
            'corelane_tokens_total{version="tiny@1"}': 640,
            "corelane_submit_seconds_count": 2,
        }.items():
            assert samples[name] == value
    # What the first one measured is kept when it ends.
    with TestClient(create_app(settings)) as later:
        assert shown(later)["corelane_submit_seconds_count"] == 2


def test_every_series_that_can_be_named_beforehand_begins_at_0(bench: Bench, api: TestClient) -> None:
    """Prometheus sees no increase in a series that begins with its first event: the first burst of failures."""
    bench.core("a/0")
    samples = shown(api)
    born = [metric for metric in ALL.values() if metric.known]
    assert {ITEMS, DELIVERIES, JOBS_ENDED, MODEL_LOADS} <= {*born}
    for metric in born:
        version = f',version="{VERSION}"' if "version" in metric.labels else ""
        names = [f'{metric.name}{{{metric.labels[-1]}="{value}"{version}}}' for value in metric.known]
        assert [name for name in names if name not in samples] == []
    assert samples['corelane_problems_total{code="store_unavailable"}'] == 0
    for status in ("500", "503"):
        assert samples[f'corelane_http_requests_total{{method="POST",route="/v1/jobs",status="{status}"}}'] == 0


def test_metrics_answer_without_redis(settings: Settings) -> None:
    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    with TestClient(create_app(away)) as alone:
        assert shown(alone) == {"corelane_store_up": 0.0}
