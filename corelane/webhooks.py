"""Webhooks: the event of a job, its signature (Standard Webhooks), and posting it to an address that is allowed.

An address is resolved once, every answer is checked, and the connection goes to the checked address: private, loopback,
link-local and metadata addresses are refused unless a setting allows their network. Redirects are failures.
"""

import socket
from datetime import UTC, datetime
from urllib.parse import urlsplit

import orjson
import requests
from ssrfguard import Policy, SSRFGuardError, resolve
from ssrfguard.requests import Session
from standardwebhooks.webhooks import Webhook as Signer

from corelane.errors import WebhookRefused
from corelane.jobs import Job, iso_time
from corelane.settings import Settings

#: Pauses before the second and later attempts, in seconds: a day in all, as Standard Webhooks suggests.
RETRY_PAUSES_S = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)

#: A receiver that says it is gone for good.
GONE = 410


def event_payload(event: str, at_ms: int, job: Job) -> bytes:
    """The body of an event: the same bytes for every attempt."""
    data = job.model_dump(mode="json", exclude={"results"})
    return orjson.dumps({"type": event, "timestamp": iso_time(at_ms), "data": data})


def sign_payload(secret: str, delivery: str, at: datetime, payload: bytes) -> dict[str, str]:
    """The headers that let the receiver verify a payload."""
    return {
        "content-type": "application/json",
        "user-agent": "corelane",
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Signer(secret).sign(delivery, at, payload.decode()),
    }


def address_policy(settings: Settings, url: str) -> Policy:
    """Ports 80 and 443 on public addresses; on allowed networks, which are the operator's own, any port."""
    ports = {80, 443}
    if settings.webhook_allowed_networks:
        try:
            ports.add(urlsplit(url).port or 443)
        except ValueError as error:
            raise WebhookRefused(f"the webhook's address is not a URL: {error}") from None
    return Policy(allowed_networks=settings.webhook_allowed_networks, allowed_ports=frozenset(ports), max_redirects=0)


def check_address(settings: Settings, url: str) -> None:
    """Refuse an address that no delivery would be allowed to reach; raises WebhookRefused saying which setting helps.

    A name that does not resolve now is let pass: the receiver may not be up yet, and every attempt checks again.
    """
    policy = address_policy(settings, url)
    try:
        resolve(policy.check_url(url), policy=policy)
    except SSRFGuardError as error:
        raise WebhookRefused(
            f"the webhook's address is refused: {error}. Private networks must be allowed by the operator in "
            "CORELANE_WEBHOOK_ALLOWED_NETWORKS"
        ) from None
    except socket.gaierror:
        return


def post_event(settings: Settings, secret: str, delivery: str, url: str, payload: bytes) -> tuple[int, str]:
    """One attempt: the receiver's status and a word on it; status 0 if none came."""
    headers = sign_payload(secret, delivery, datetime.now(UTC), payload)
    try:
        with Session(policy=address_policy(settings, url)) as session:
            session.trust_env = False
            response = session.post(
                url, data=payload, headers=headers, timeout=settings.webhook_timeout_s, allow_redirects=False
            )
            return response.status_code, f"answered {response.status_code}"
    except (requests.RequestException, SSRFGuardError, WebhookRefused, OSError) as error:
        return 0, f"{type(error).__name__}: {error}"


def next_pause(attempts: int, status: int) -> float | None:
    """Seconds until the next attempt, after ``attempts`` that failed; None when it is over, well or not."""
    if 200 <= status < 300 or status == GONE or attempts > len(RETRY_PAUSES_S):
        return None
    return RETRY_PAUSES_S[attempts - 1]
