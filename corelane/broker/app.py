"""Celery: the app that every process makes, and the message that rings a core.

Celery carries bells and runs the workers; the state of jobs is in the store. Bells are acknowledged early and within
the worker. A lost bell is rung again, whereas an acknowledgement that fails in Redis blocks the worker for good
(https://github.com/celery/celery/issues/10302).

All workarounds for Celery 5.7 and kombu 5.7 are in this folder.
"""

import json
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import redis.exceptions
from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import KombuError
from kombu.transport import redis as redis_transport

from corelane.broker.transport import GuardedTransport
from corelane.domain.dispatch import DRAIN_TASK, KEEPER_QUEUE, Core
from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.settings.address import RedisAddress, read_address

#: Redis is pinged this often, and a connection that is silent this long is closed, in seconds. It is shorter than any
#: lease, so that a half-open connection is left within 6 s.
BROKER_TIMEOUT_S = 2

#: Pauses between attempts to reach Redis, in seconds. Celery's own pauses grow to 30 s, and a core would sleep as
#: long after Redis is back.
FIRST_RECONNECT_S, LONGEST_RECONNECT_S = 0.5, 2.0

#: Longer than any model takes to load. Celery kills a child that takes longer to start, again and again
#: (https://github.com/celery/celery/issues/4323).
CHILD_START_S = 600

#: Attempts to connect before a message is given up, and the pauses between them, in seconds. By default kombu tries for
#: ever, and the sender is blocked meanwhile (https://github.com/celery/celery/issues/4296).
SEND_RETRIES, SEND_PAUSE_S = 2, 0.2

#: Python's constants for the three values of ``ssl_cert_reqs``.
CERT_REQS = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}

#: Places in the envelope that the ring function of ``lanes.lua`` fills in.
BELL_ID, BELL_QUEUE = "BELLID", "BELLQUEUE"


class SteadyConnection(Connection):
    """A connection that is retried every two seconds for as long as Redis cannot be reached.

    It also survives a text in a queue that is not a message.
    """

    #: The URL of Redis. Celery's own URL is only for display.
    redis_url: str

    def get_transport_cls(self) -> Any:
        """Return the transport; for queues in Redis it is the guarded one."""
        transport = super().get_transport_cls()
        return GuardedTransport if issubclass(transport, redis_transport.Transport) else transport

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, with as many attempts as needed."""
        pauses = {
            "interval_start": FIRST_RECONNECT_S,
            "interval_step": FIRST_RECONNECT_S,
            "interval_max": LONGEST_RECONNECT_S,
        }
        return super().ensure_connection(*args, **(pauses | kwargs))


def make_amqp(redis_url: str) -> type[AMQP]:
    """Return the class through which Celery uses a ``SteadyConnection`` to one Redis."""

    class OwnConnection(SteadyConnection):
        pass

    class SteadyAMQP(AMQP):
        Connection = OwnConnection

    OwnConnection.redis_url = redis_url
    return SteadyAMQP


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """The address of Redis in Celery's own terms, for what Celery and Flower show and query themselves.

    It has ``broker_url``, ``broker_use_ssl`` and additions to ``broker_transport_options``. Connections of workers and
    senders do not use it: ``transport`` makes them from the URL in the settings.
    """

    url: str
    tls: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def celery_broker(url: str) -> CeleryBroker:
    """Return the broker for a URL of Redis."""
    address = read_address(url)
    parts = urlsplit(address.url)
    tls = _tls(address) if address.is_tls else None
    if parts.scheme == "unix":
        password = parts.password or dict(parse_qsl(parts.query)).get("password")
        login = f":{quote(password, safe='')}@" if password else ""
        return CeleryBroker(f"redis+socket://{login}{parts.path}?virtual_host={address.db}")
    if not address.sentinels:
        return CeleryBroker(url.partition("?")[0] if tls else url, tls)
    login = parts.netloc.rpartition("@")[0]
    host, port = address.sentinels[0]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    username, password = address.sentinel_login
    own: dict[str, Any] = {name: text for name, text in (("username", username), ("password", password)) if text}
    if tls is not None:
        own |= {"ssl": True, **tls}
    options = {"master_name": address.primary, "sentinel_kwargs": own}
    return CeleryBroker(f"sentinel://{login}{'@' if login else ''}{place}/{address.db}", tls, options)


def _tls(address: RedisAddress) -> dict[str, Any]:
    """Return the options of TLS; a certificate is required unless the URL says otherwise."""
    given: dict[str, Any] = dict(address.tls)
    if "ssl_check_hostname" in given:
        given["ssl_check_hostname"] = given["ssl_check_hostname"].lower() not in ("0", "f", "false", "n", "no")
    return given | {"ssl_cert_reqs": CERT_REQS[given.get("ssl_cert_reqs", "required")]}


def make_celery(settings: Settings) -> Celery:
    """Make a Celery app without tasks. Workers add their tasks; other processes send them by name."""
    broker = celery_broker(settings.redis_url)
    app = Celery("corelane", broker=broker.url, set_as_current=False, amqp=make_amqp(settings.redis_url))
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        event_serializer="json",
        result_accept_content=["json"],
        result_serializer="json",
        task_acks_late=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_default_queue=KEEPER_QUEUE,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_proc_alive_timeout=CHILD_START_S,
        # This matters only for tasks that are acknowledged late, and there are none. Without it Celery warns at each
        # loss.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_use_ssl=broker.tls,
        broker_transport_options={
            **broker.options,
            "ack_emulation": False,
            "socket_timeout": BROKER_TIMEOUT_S,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": BROKER_TIMEOUT_S,
            "max_retries": SEND_RETRIES,
            "interval_start": SEND_PAUSE_S,
            "interval_step": SEND_PAUSE_S,
            "interval_max": SEND_PAUSE_S,
        },
    )
    return app


def bell_envelope(app: Celery) -> str:
    """Return the message of one bell, built by kombu itself, with placeholders for its id and queue.

    The store's scripts push it to the core's queue in the same step that puts work into the lane. Kombu's minor version
    is pinned, as this relies on its message format; a test rings a real worker with it.
    """
    with Connection("memory://") as connection:
        channel = connection.channel()
        queue: Any = Queue(BELL_QUEUE, Exchange(""), BELL_QUEUE)
        queue(channel).declare()
        producer = Producer(channel)
        app.send_task(DRAIN_TASK, task_id=BELL_ID, queue=queue, producer=producer, retry=False)
        message = channel._queue_for(BELL_QUEUE).get_nowait()
    message["properties"].update(delivery_tag=BELL_ID, correlation_id=BELL_ID)
    return json.dumps(message)


def ring_core(app: Celery, core: Core) -> None:
    """Ring a core through Celery itself, without the envelope, as the keeper does.

    Raises StoreUnavailable soon if Redis cannot be reached.
    """
    try:
        app.send_task(DRAIN_TASK, queue=core.queue, retry=False)
    except (KombuError, redis.exceptions.RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis takes no bell for {core}: {error}") from error
