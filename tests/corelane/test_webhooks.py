import base64
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from corelane.errors import WebhookRefused
from corelane.jobs import JobStatus
from corelane.settings import Settings
from corelane.store.records import JobRecord
from corelane.webhooks import RETRY_PAUSES_S, check_address, event_payload, next_pause, sign_payload

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


def test_signature_verifies_with_the_stock_library() -> None:
    job = JobRecord("job_x", JobStatus.SUCCEEDED, "m@1", 1, 1000, 1001, 1002, succeeded=1).describe()
    payload = event_payload("job.completed", 1002, job)
    headers = sign_payload(SECRET, "evt_x", datetime.now(UTC), payload)
    event = Verifier(SECRET).verify(payload, headers)
    assert event["data"]["id"] == "job_x"
    assert event["timestamp"] == "1970-01-01T00:00:01.002Z"
    assert "results" not in json.loads(payload)["data"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://localhost/x",
        "http://[::1]/x",
        "http://10.0.0.8/x",
        "http://192.168.1.1/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:127.0.0.1]/x",
        "http://2130706433/x",
        "http://0177.0.0.1/x",
        "http://100.64.0.1/x",
        "http://[64:ff9b::7f00:1]/x",
        "http://user:pass@93.184.216.34/x",
        "http://93.184.216.34:8080/x",
        "https://0.0.0.0/x",
    ],
)
def test_address_that_is_not_public_is_refused_naming_the_setting(url: str) -> None:
    with pytest.raises(WebhookRefused, match="CORELANE_WEBHOOK_ALLOWED_NETWORKS"):
        check_address(Settings(), url)


def test_allowed_network_is_let_pass_on_any_port() -> None:
    settings = Settings(webhook_allowed_networks="127.0.0.0/8")
    check_address(settings, "http://127.0.0.1:9000/x")
    with pytest.raises(WebhookRefused):
        check_address(settings, "http://10.0.0.8/x")


def test_public_address_is_let_pass() -> None:
    check_address(Settings(), "https://93.184.216.34/x")


def test_attempts_go_on_for_a_day_and_end_on_success_or_gone() -> None:
    assert next_pause(1, 204) is None
    assert next_pause(1, 410) is None
    pauses = [next_pause(attempt, 500) for attempt in range(1, 10)]
    assert pauses == [*RETRY_PAUSES_S, None, None]
    assert 24 * 3600 < sum(RETRY_PAUSES_S) < 30 * 3600
    assert next_pause(1, 302) == next_pause(1, 0) == 5
