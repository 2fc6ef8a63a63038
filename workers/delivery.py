"""The webhook task: one attempt at one delivery, and when to try again."""

from pydantic import SecretStr

from corelane.errors import SetupError
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.deliveries import DeliveryStore
from corelane.webhooks import event_payload, next_pause, post_event

log = get_logger(__name__)


def deliver(settings: Settings, deliveries: DeliveryStore, delivery_id: str) -> str:
    """Post the event; what came of it. A delivery that is done already is left alone."""
    delivery = deliveries.get(delivery_id)
    job = None if delivery is None else deliveries.job(delivery)
    if delivery is None or job is None:
        return "done before"
    payload = event_payload(delivery.event, delivery.at_ms, job.describe())
    secret = _secret(settings.webhook_secret)
    status, outcome = post_event(settings, secret, delivery.id, delivery.url, payload)
    pause = next_pause(delivery.attempts + 1, status)
    deliveries.record(delivery.id, outcome, pause)
    log.info("delivery", delivery=delivery.id, job_id=delivery.job, status=status, outcome=outcome, retry_after_s=pause)
    return outcome


def _secret(secret: SecretStr | None) -> str:
    if secret is None:
        raise SetupError("set CORELANE_WEBHOOK_SECRET here as for the API: webhooks cannot be signed without it")
    return secret.get_secret_value()
