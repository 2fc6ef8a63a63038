"""What the service says of itself while questions are answered and something beside them is not done."""

import pytest

from corelane.settings import Settings
from tests.api.conftest import Service
from tests.corelane.test_overdue import announce_late


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give a core that was announced once a lease for the whole test."""
    return settings.model_copy(update={"lease_s": 60})


def test_events_that_nobody_sends_turn_a_detail_red_and_cost_no_answer(service: Service) -> None:
    ready = service.http.get("/readyz")
    assert ready.status_code == 200, ready.text
    assert {detail["state"] for detail in ready.json()["details"].values()} == {"green"}
    announce_late(service.bench.raw, service.bench.settings, "a.test")
    ready = service.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ok")
    states = {name: detail["state"] for name, detail in ready.json()["details"].items()}
    assert states == {
        "webhooks": "red",
        "sweeps": "green",
        "feeding": "green",
        "batches": "green",
        "parts": "green",
        "redis": "green",
    }
    shown = service.http.get("/metrics").text
    assert 'corelane_waiting_seconds{what="webhooks"} 6' in shown
    assert 'corelane_waiting_seconds{what="sweeps"} 0.0' in shown
