"""The Python client: for one item or a million; results are typed. Needs neither torch nor server libraries.

``Client`` blocks, ``AsyncClient`` is awaited; both have the same methods. A request that changes nothing is repeated,
with back-off, while the service cannot be reached or is overloaded. A job is repeated too, because it carries an
idempotency key. Every failure is ServiceError (the service gave a reason), ServiceUnreachable (no reply came) or
InvalidInput. ``verify_webhook`` is for callers who prefer webhooks to polling.
"""

# Results of each task have a form of their own, which is known once the task is.
import corelane.tasks.registry  # noqa: F401
from corelane.client.aio import AsyncClient
from corelane.client.blocking import Client
from corelane.client.endpoints import JobParts
from corelane.client.patience import Wait
from corelane.client.protocol import JobEvent
from corelane.client.webhooks import verify_webhook
from corelane.client.wire import JobItem

__all__ = ["AsyncClient", "Client", "JobEvent", "JobItem", "JobParts", "Wait", "verify_webhook"]
