import base64
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from corelane.domain.jobs import Job, JobStatus
from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.settings.rules import RETRY_PAUSES_S
from corelane.store.jobs.records import JobRecord
from corelane.webhooks.protocol import (
    JITTER,
    LONGEST_RETRY_AFTER_S,
    DeliveryVerdict,
    WebhookReply,
    event_payload,
    job_data,
    judge,
    retry_after_s,
    sign_payload,
    signing_secrets,
    window_s,
)

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
PREVIOUS = "whsec_" + base64.b64encode(b"76543210fedcba9876543210").decode()
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_job() -> Job:
    return JobRecord("job_x", JobStatus.SUCCEEDED, "m@1", 1, 1000, 1001, 1002, succeeded=1).describe()


def verdict(status: int, tries: int = 1, retry_after: str | None = None, roll: float = 0) -> DeliveryVerdict:
    return judge(WebhookReply(status, 5, retry_after=retry_after), tries, RETRY_PAUSES_S, roll, NOW)


def test_signature_verifies_with_the_stock_library() -> None:
    data = job_data(a_job(), [{"index": 0}], inline_bytes=1000, public_url=None)
    payload = event_payload("job.completed", 1002, data)
    headers = sign_payload([SECRET], "evt_x", datetime.now(UTC), payload)
    event = Verifier(SECRET).verify(payload, headers)
    assert event["type"] == "job.completed"
    assert event["data"]["id"] == "job_x"
    assert event["data"]["results"] == [{"index": 0}]
    assert event["data"]["urls"]["self"] == "/v1/jobs/job_x"
    assert event["timestamp"] == "1970-01-01T00:00:01.002Z"


def test_while_a_secret_is_replaced_receivers_verify_with_either() -> None:
    secrets = signing_secrets(Settings(webhook_secret=SECRET, webhook_previous_secret=PREVIOUS), [])
    headers = sign_payload(secrets, "evt_x", datetime.now(UTC), b'{"a":1}')
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert Verifier(SECRET).verify(b'{"a":1}', headers) == {"a": 1}
    assert Verifier(PREVIOUS).verify(b'{"a":1}', headers) == {"a": 1}
    other = "whsec_" + base64.b64encode(b"a third secret of 24 byte").decode()
    with pytest.raises(WebhookVerificationError):
        Verifier(other).verify(b'{"a":1}', headers)


def test_without_a_secret_nothing_is_signed() -> None:
    with pytest.raises(SetupError, match="CORELANE_WEBHOOK_SECRET"):
        signing_secrets(Settings(), [])


def test_results_that_are_not_small_are_told_by_their_address_alone() -> None:
    many = [{"index": n} for n in range(100)]
    for results, bound in ((many, 100), (many, 0), ([], 100)):
        data = json.loads(job_data(a_job(), results, inline_bytes=bound, public_url="https://qa.example/x/"))
        assert "results" not in data
        assert data["urls"]["results"] == "https://qa.example/x/v1/jobs/job_x/results"


def test_success_and_gone_end_a_delivery_and_all_else_is_tried_again() -> None:
    assert verdict(204) == DeliveryVerdict("delivered", True, None, 0)
    assert verdict(410) == DeliveryVerdict("gone", True, None, 0)
    for status in (0, 302, 400, 404, 500):
        assert verdict(status).outcome == "failed"
        assert verdict(status).pause_s == 5


def test_attempts_go_on_for_a_day_and_then_it_is_over() -> None:
    pauses = [verdict(500, tries).pause_s for tries in range(1, 10)]
    assert pauses == [*RETRY_PAUSES_S, None, None]
    assert 24 * 3600 < sum(RETRY_PAUSES_S) <= window_s(RETRY_PAUSES_S)
    assert window_s((0.5,)) == 24 * 3600


def test_a_host_is_well_as_long_as_it_answers_for_itself() -> None:
    assert [status for status in (0, 200, 302, 400, 408, 410, 429, 500, 503) if verdict(status).is_host_well] == [
        200,
        302,
        400,
        410,
    ]


@given(st.floats(0, 1), st.integers(1, 7), st.integers(0, 10**12))
def test_pauses_are_lengthened_at_random_and_by_what_was_asked_for_within_bounds(
    roll: float, tries: int, asked: int
) -> None:
    found = verdict(503, tries, str(asked), roll)
    least = max(RETRY_PAUSES_S[tries - 1], min(asked, LONGEST_RETRY_AFTER_S))
    assert found.pause_s is not None
    assert least <= found.pause_s <= least * (1 + JITTER)
    assert found.host_pause_s == min(asked, 600)


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    assert retry_after_s("120", NOW) == 120
    assert retry_after_s(format_datetime(NOW + timedelta(seconds=90), usegmt=True), NOW) == 90
    assert retry_after_s(format_datetime(NOW - timedelta(days=90), usegmt=True), NOW) == 0


@given(st.text(max_size=40))
def test_retry_after_that_cannot_be_read_asks_for_nothing(text: str) -> None:
    assert retry_after_s(text, NOW) >= 0
