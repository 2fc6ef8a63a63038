"""What the service says of itself while questions are answered and something beside them is not done."""

from contextlib import closing

import pytest

from corelane.settings import Settings
from tests.api.conftest import Service
from tests.api.wires import connect, request
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


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v1/jobs"])
def test_head_is_answered_as_get_without_the_body(service: Service, path: str) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(request("HEAD", path) + request("GET", path, None, "Connection: close"))
        of_head, of_get, body = caller.makefile("rb").read().split(b"\r\n\r\n")
    assert of_head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
    assert told(of_head) == told(of_get)
    assert f"content-length: {len(body)}".encode() in of_head


def told(head: bytes) -> list[bytes]:
    """Return the lines of a response's head but those that differ each time."""
    own = (b"date", b"x-request-id", b"connection")
    return [line for line in head.lower().splitlines() if not line.startswith(own)]
