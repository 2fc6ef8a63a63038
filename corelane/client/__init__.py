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
from corelane.client.patience import LONGEST_PAUSE_S, PATIENCE_S, Wait, pause_s
from corelane.client.protocol import AWAY, OVERLOADED, JobEvent
from corelane.client.webhooks import verify_webhook
from corelane.client.wire import FOREIGN, PIECE_BYTES, JobItem, dump_body, dump_lines, read_problem

__all__ = [
    "AWAY",
    "FOREIGN",
    "LONGEST_PAUSE_S",
    "OVERLOADED",
    "PATIENCE_S",
    "PIECE_BYTES",
    "AsyncClient",
    "Client",
    "JobEvent",
    "JobItem",
    "JobParts",
    "Wait",
    "dump_body",
    "dump_lines",
    "pause_s",
    "read_problem",
    "verify_webhook",
]
