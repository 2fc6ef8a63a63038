"""A receiver's check of a webhook, against the library that signs them."""

from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook

from corelane.client import verify_webhook
from corelane.errors import SignatureRefused

SECRET, OTHER = "whsec_" + "YWJj" * 8, "whsec_" + "ZGVm" * 8
BODY = '{"type": "job.completed", "data": {"id": "job_1", "metadata": {"who": "Zoë"}}}'


def headers(secret: str = SECRET, at: datetime | None = None) -> dict[str, str]:
    at = at or datetime.now(UTC)
    return {
        "Webhook-Id": "evt_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("evt_1", at, BODY),
    }


def test_a_signed_event_is_read() -> None:
    assert verify_webhook(BODY.encode(), headers(), SECRET)["data"]["metadata"] == {"who": "Zoë"}


def test_either_secret_will_do_while_they_are_exchanged() -> None:
    assert verify_webhook(BODY, headers(OTHER), SECRET, OTHER)["type"] == "job.completed"


@pytest.mark.parametrize(
    ("body", "given", "secrets"),
    [
        (BODY.replace("job_1", "job_2"), headers(), (SECRET,)),
        (BODY, headers(OTHER), (SECRET,)),
        (BODY, headers(at=datetime.now(UTC) - timedelta(minutes=6)), (SECRET,)),
        (BODY, {}, (SECRET,)),
        (BODY, headers() | {"Webhook-Signature": "nonsense"}, (SECRET,)),
        (b"\xff", headers(), (SECRET,)),
        (BODY, headers(), ("whsec_",)),
        (BODY, headers(), ()),
    ],
)
def test_anything_else_is_refused(body: bytes | str, given: dict[str, str], secrets: tuple[str, ...]) -> None:
    with pytest.raises(SignatureRefused):
        verify_webhook(body, given, *secrets)
