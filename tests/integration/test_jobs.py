"""Where the time of a job goes, with a whole fleet."""

import orjson
import pytest

from tests.integration.conftest import Fleet
from tests.tools.receivers import receiver
from tests.tools.waiting import eventually

ITEM = {"question": "What is the number?", "context": "The number is 7."}

#: The parts of a job's time, without `deliver_s`, which comes after its end.
PARTS = {"submit_s", "wait_s", "tokenize_s", "compute_s", "merge_s", "commit_s", "other_s"}

#: A processor that neighbours take away in the wrong moment shows in a single job, not in the best of these.
MOST_TRIES = 20


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([ITEM], id="a lone question"),
        pytest.param([ITEM | {"question": f"What is number {n}?"} for n in range(1000)], id="a job of 1,000"),
        pytest.param([ITEM | {"context": ITEM["context"] * 500}], id="a document"),
    ],
)
def test_parts_of_a_jobs_time_sum_to_its_wall_time(fleet: Fleet, items: list[dict[str, str]]) -> None:
    shares: list[float] = []
    while min(shares, default=1.0) > 0.05:
        assert len(shares) < MOST_TRIES, f"the parts leave this share of the time unexplained: {shares}"
        job = fleet.api.post("/v1/jobs", json={"items": items}, headers={"Prefer": "wait=60"}).json()
        timing = job["timing"]
        parts = [seconds for name, seconds in timing.items() if name in PARTS]
        assert sum(parts) == pytest.approx(timing["wall_s"], abs=1e-5)
        assert min(timing["submit_s"], timing["wait_s"], timing["tokenize_s"], timing["commit_s"]) > 0
        assert 0 < timing["core_s"] <= timing["cores"] * timing["wall_s"]
        assert timing["compute_s"] > 0
        assert timing == fleet.api.get(f"/v1/jobs/{job['id']}").json()["timing"]
        shares.append(timing["other_s"] / timing["wall_s"])


def test_time_until_the_webhook_was_delivered_is_added_to_the_job(fleet: Fleet) -> None:
    with receiver() as found:
        body = {"items": [ITEM], "webhook": {"url": found.url}}
        job = fleet.api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"}).json()
        eventually(lambda: fleet.api.get(f"/v1/jobs/{job['id']}").json()["timing"]["deliver_s"] is not None)
    told = orjson.loads(found.posts[0].body)["data"]
    assert told["timing"] == job["timing"] | {"deliver_s": None}
