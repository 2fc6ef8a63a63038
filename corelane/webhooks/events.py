"""Events on the wire: the payload, the same bytes for every attempt, and its Standard Webhooks signatures.

Two secrets sign while one replaces the other: receivers verify with either, so that each can change when it likes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from standardwebhooks.webhooks import Webhook as Signer

from corelane.domain.ids import iso_time
from corelane.domain.jobs import Job
from corelane.errors import SetupError
from corelane.settings import Settings


def event_payload(event: str, at_ms: int, data: bytes) -> bytes:
    """The body of an event; ``data`` is JSON already."""
    return orjson.dumps({"type": event, "timestamp": iso_time(at_ms), "data": orjson.Fragment(data)})


def job_data(job: Job, results: Sequence[Mapping[str, Any]], *, inline_bytes: int, public_url: str | None) -> bytes:
    """A job as an event tells of it, with its results if they take no more than ``inline_bytes``."""
    if public_url is not None:
        links = {name: public_url.rstrip("/") + link for name, link in job.urls.model_dump().items() if link}
        job = job.model_copy(update={"urls": job.urls.model_copy(update=links)})
    data = job.model_dump(mode="json", exclude={"results"})
    if results and len(inline := orjson.dumps(results)) <= inline_bytes:
        data["results"] = orjson.Fragment(inline)
    return orjson.dumps(data)


def signing_secrets(settings: Settings) -> list[str]:
    """The secrets that sign, the newest first; raises SetupError without any."""
    secrets = (settings.webhook_secret, settings.webhook_previous_secret)
    found = [secret.get_secret_value() for secret in secrets if secret is not None]
    if not found:
        raise SetupError("set CORELANE_WEBHOOK_SECRET here as for the API: webhooks cannot be signed without it")
    return found


def sign_payload(secrets: Sequence[str], delivery: str, at: datetime, payload: bytes) -> dict[str, str]:
    """The headers that let the receiver verify a payload: one signature for each secret, separated by spaces."""
    text = payload.decode()
    return {
        "content-type": "application/json",
        "user-agent": "corelane",
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(delivery, at, text) for secret in secrets),
    }
