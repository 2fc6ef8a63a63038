"""The webhook protocol: an event's bytes, its signatures, and the rules for a receiver's reply. Pure.

Payloads and signatures follow Standard Webhooks. An event has the same bytes in every attempt. While a new secret
replaces an old one, both sign, so each receiver can change at any time. If an owner has its own secrets, only they sign
its events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import orjson
from standardwebhooks.webhooks import Webhook as Signer

from corelane.domain.ids import iso_time
from corelane.domain.jobs import Job
from corelane.domain.webhook_secrets import SERVICE, OwnedSecret
from corelane.errors import SetupError
from corelane.settings import Settings

#: The receiver does not want this event any more.
GONE = 410

#: The receiver asks for a pause. Its host's other deliveries pause too.
BUSY = frozenset({429, 503})

#: Statuses below 500 that still mean that the host has a problem.
TIMED_OUT, TOO_MANY = 408, 429

#: Longest pauses that a receiver may ask for with Retry-After, for a delivery and for all of its host, in seconds.
LONGEST_RETRY_AFTER_S, LONGEST_HOST_PAUSE_S = 6 * 3600.0, 600.0

#: Largest share by which a pause is lengthened at random, so that events that failed together are spread.
JITTER = 0.2

DAY_S = 24 * 3600.0

Outcome = Literal["delivered", "gone", "failed"]


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """The result of an attempt; ``status`` is 0 without a response. ``snippet`` is the body's beginning."""

    status: int
    duration_ms: int
    snippet: str = ""
    error: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryVerdict:
    """The consequence of an attempt. Pauses are in seconds; None means that the delivery is not tried again."""

    outcome: Outcome
    is_host_well: bool
    pause_s: float | None
    host_pause_s: float


def event_payload(event: str, at_ms: int, data: bytes) -> bytes:
    """Return the body of an event; ``data`` must be JSON."""
    return orjson.dumps({"type": event, "timestamp": iso_time(at_ms), "data": orjson.Fragment(data)})


def job_data(job: Job, results: Sequence[Mapping[str, Any]], *, inline_bytes: int, public_url: str | None) -> bytes:
    """Return an event's data: a job, with its results if they take at most ``inline_bytes``.

    The job's usage is left out, as it may still grow after the end: a core learns of a cancellation up to a batch
    later.
    """
    if public_url is not None:
        links = {name: public_url.rstrip("/") + link for name, link in job.urls.model_dump().items() if link}
        job = job.model_copy(update={"urls": job.urls.model_copy(update=links)})
    data = job.model_dump(mode="json", exclude={"results", "usage"})
    if results and len(inline := orjson.dumps(results)) <= inline_bytes:
        data["results"] = orjson.Fragment(inline)
    return orjson.dumps(data)


def signing_secrets(settings: Settings, own: Sequence[OwnedSecret]) -> list[str]:
    """Return the secrets that sign an owner's events, newest first; raise SetupError if there is none.

    The service's secrets sign if the owner has none. After the owner makes its first secret, both sign for a while.
    """
    found = [each.value for each in own if each.id != SERVICE]
    if not own or len(found) < len(own):
        secrets = (settings.webhook_secret, settings.webhook_previous_secret)
        found += [secret.get_secret_value() for secret in secrets if secret is not None]
    if not found:
        raise SetupError(
            "the owner has no webhook secret, and the webhook sender no CORELANE_WEBHOOK_SECRET: create one "
            "(`corelane webhooks secrets create`), or set that here as for the API"
        )
    return found


def sign_payload(secrets: Sequence[str], delivery: str, at: datetime, payload: bytes) -> dict[str, str]:
    """Return the headers that let the receiver verify a payload, with a signature for each secret."""
    text = payload.decode()
    return {
        "content-type": "application/json",
        "user-agent": "corelane",
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(delivery, at, text) for secret in secrets),
    }


def judge(reply: WebhookReply, tries: int, pauses_s: Sequence[float], roll: float, now: datetime) -> DeliveryVerdict:
    """Judge attempt number ``tries``, counted from 1; ``roll`` is random, from 0 to 1."""
    is_well = 0 < reply.status < 500 and reply.status not in (TIMED_OUT, TOO_MANY)
    if 200 <= reply.status < 300:
        return DeliveryVerdict("delivered", True, None, 0)
    if reply.status == GONE:
        return DeliveryVerdict("gone", True, None, 0)
    asked_s = retry_after_s(reply.retry_after, now)
    host_pause_s = min(asked_s, LONGEST_HOST_PAUSE_S) if reply.status in BUSY else 0.0
    if tries > len(pauses_s):
        return DeliveryVerdict("failed", is_well, None, host_pause_s)
    pause_s = max(pauses_s[tries - 1], min(asked_s, LONGEST_RETRY_AFTER_S)) * (1 + JITTER * roll)
    return DeliveryVerdict("failed", is_well, pause_s, host_pause_s)


def window_s(pauses_s: Sequence[float]) -> float:
    """Return how long a failing host's delivery is kept: a day, or longer if its pauses may take longer."""
    return max(DAY_S, sum(pauses_s) * (1 + JITTER))


def retry_after_s(header: str | None, now: datetime) -> float:
    """Return the seconds in a Retry-After header, which is a number or a date (RFC 9110); 0 if it cannot be read."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
