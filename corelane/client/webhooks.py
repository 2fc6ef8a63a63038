"""The receiver's side of a webhook: check that the service signed it, and read its event."""

from collections.abc import Mapping
from typing import Any

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from corelane.errors import SignatureRefused


def verify_webhook(body: bytes | str, headers: Mapping[str, str], *secrets: str) -> dict[str, Any]:
    """Return the event of a webhook, ``{"type", "timestamp", "data"}``, if one of the secrets signed it (``whsec_…``).

    ``body`` is the request's body, byte for byte: JSON that was parsed and written again does not match the signature.
    Raises SignatureRefused if no secret matches, or if the webhook was signed more than five minutes ago. The
    ``webhook-id`` header is the same each time an event is posted.
    """
    if not secrets:
        raise SignatureRefused("a webhook is verified with the secret that signs it, `whsec_…`: give at least one")
    names = {name.lower(): value for name, value in headers.items()}
    reason = ""
    for secret in secrets:
        try:
            event: dict[str, Any] = Webhook(secret).verify(body, names)
        except (WebhookVerificationError, EmptyWebhookSecretError, ValueError) as error:
            # The library raises ValueError for headers, secrets and bodies that it cannot parse.
            reason = str(error)
        else:
            return event
    raise SignatureRefused(f"this is not a webhook of the service: {reason}")
