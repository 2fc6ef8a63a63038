"""The receiver of ``corelane webhooks listen``: verifies each webhook that arrives, prints it and replies 204.

A repeated webhook, with the same ``webhook-id``, gets the same reply and is marked. One with a wrong signature gets
401 and is shown with the reason.
"""

import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rich.console import Console

from corelane.cli.output import error_console, plain, print_line
from corelane.client.webhooks import verify_webhook
from corelane.domain.webhook_secrets import new_secret
from corelane.errors import SetupError, SignatureRefused
from corelane.settings import read_settings

#: Largest body of an event, in bytes: events include only a few results.
MOST_BYTES = 8 * 1024 * 1024

#: Longest pause within a request, in seconds.
SILENCE_S = 15

#: Number of ids that are remembered, to mark repeated webhooks.
REMEMBERED = 10_000


def receive(host: str, port: int, secret: str | None, as_json: bool, count: int | None) -> None:
    """Receive on this address until Ctrl-C or ``count`` events; raise SetupError if the address cannot be used."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    settings = read_settings()
    if secret is None and settings.webhook_secret is not None:
        secret = settings.webhook_secret.get_secret_value()
    if secret is None:
        raise SetupError(
            "no secret: give your own with --secret (`corelane webhook-secret create` makes one), or set the same for "
            f"the service and here, as in CORELANE_WEBHOOK_SECRET={new_secret()}"
        )
    receiver = WebhookReceiver(secret, console, as_json, count)
    try:
        server = ThreadingHTTPServer((host, port), make_handler(receiver))
    except OSError as error:
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    with server:
        server.daemon_threads = True
        error_console().print(
            f"listening on http://{host}:{server.server_port}/; the service must allow this network: "
            "CORELANE_WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8"
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        receiver.is_done.wait()
        server.shutdown()


class WebhookReceiver:
    """The webhooks received so far, and how they are shown."""

    def __init__(self, secret: str, console: Console, as_json: bool, count: int | None) -> None:
        self._secret = secret
        self._console = console
        self._as_json = as_json
        self._left = count
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self.is_done = threading.Event()

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """Verify and show one delivery; return the status to reply with."""
        with self._lock:
            try:
                event = verify_webhook(body, headers, self._secret)
                delivery = headers["webhook-id"]
            except SignatureRefused as error:
                self._console.print(f"refused: {error.detail}", style="red")
                return 401
            again = delivery in self._seen
            self._seen[delivery] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            if self._as_json:
                print_line({"webhook_id": delivery, "again": again} | event)
            else:
                self._console.print(describe(delivery, event, again))
            if self._left is not None and not again:
                self._left -= 1
            return 204

    def answered(self) -> None:
        """Stop if the reply just sent was the last one wanted."""
        if self._left == 0:
            self.is_done.set()


def describe(delivery: str, event: dict[str, Any], again: bool) -> str:
    """Return an event as a line."""
    data = event.get("data")
    about = data if isinstance(data, dict) else {}
    counts = about.get("counts") or about.get("request_counts") or {}
    totals = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    parts = (event.get("type"), about.get("id"), about.get("status"), totals, delivery, "again" if again else "")
    return plain(" · ".join(str(part) for part in parts if part))


def make_handler(receiver: WebhookReceiver) -> type[BaseHTTPRequestHandler]:
    """Return a request handler for a receiver; it accepts only POST."""

    class ReceiverHandler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not size.isdigit() or int(size) > MOST_BYTES:
                self._reply(411 if not size.isdigit() else 413)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._reply(receiver.take(self.rfile.read(int(size)), headers))
            receiver.answered()

        def _reply(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: events are printed."""

    return ReceiverHandler
