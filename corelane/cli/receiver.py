"""What ``corelane webhooks listen`` runs: verifies each webhook that comes, prints it and answers 204.

A delivery that comes again, with the same ``webhook-id``, is answered alike and marked; one whose signature does not
fit is answered 401 and shown with the reason.
"""

import base64
import secrets
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rich.console import Console

from corelane.cli.output import plain, print_line
from corelane.client.webhooks import verify_webhook
from corelane.errors import SetupError, SignatureRefused
from corelane.settings import read_settings

#: A body larger than this is no event of ours, in bytes: results ride along only where they are few.
MOST_BYTES = 8 * 1024 * 1024

#: A sender who stops in the middle of a request is let go after this, in seconds.
SILENCE_S = 15

#: Ids remembered, to tell what comes again.
REMEMBERED = 10_000


def receive(host: str, port: int, secret: str | None, as_json: bool, count: int | None) -> None:
    """Receive on this address until Ctrl-C, or until so many events came; raises SetupError if that cannot be."""
    receiver = Receiver(find_secret(secret), Console(highlight=False, emoji=False, soft_wrap=True), as_json, count)
    try:
        server = ThreadingHTTPServer((host, port), make_handler(receiver))
    except OSError as error:
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    with server:
        server.daemon_threads = True
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"listening on http://{host}:{server.server_port}/; the service must allow this network: "
            "CORELANE_WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8"
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        receiver.is_done.wait()
        server.shutdown()


def find_secret(given: str | None) -> str:
    """The secret to verify with; raises SetupError that offers a new one if there is none."""
    settings = read_settings()
    if given is not None:
        return given
    if settings.webhook_secret is not None:
        return settings.webhook_secret.get_secret_value()
    fresh = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
    raise SetupError(f"no secret: set the same for the service and here, as in CORELANE_WEBHOOK_SECRET={fresh}")


class Receiver:
    """What has come so far, and how it is shown."""

    def __init__(self, secret: str, console: Console, as_json: bool, count: int | None) -> None:
        self._secret = secret
        self._console = console
        self._as_json = as_json
        self._left = count
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self.is_done = threading.Event()

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """One delivery; the status to answer with."""
        with self._lock:
            try:
                event = verify_webhook(body, headers, self._secret)
                delivery = headers["webhook-id"]
            except SignatureRefused as error:
                self._console.print(f"refused: {error.detail}", style="red", markup=False)
                return 401
            again = delivery in self._seen
            self._seen[delivery] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            self._show(delivery, event, again)
            if self._left is not None and not again:
                self._left -= 1
            return 204

    def answered(self) -> None:
        """An answer is on its way: the end, if it was the last that was wanted."""
        if self._left == 0:
            self.is_done.set()

    def _show(self, delivery: str, event: dict[str, Any], again: bool) -> None:
        if self._as_json:
            print_line({"webhook_id": delivery, "again": again} | event)
            return
        self._console.print(describe(delivery, event, again), markup=False)


def describe(delivery: str, event: dict[str, Any], again: bool) -> str:
    """An event in a line."""
    data = event.get("data")
    about = data if isinstance(data, dict) else {}
    counts = about.get("counts") or about.get("request_counts") or {}
    told = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    parts = (event.get("type"), about.get("id"), about.get("status"), told, delivery, "again" if again else "")
    return plain(" · ".join(str(part) for part in parts if part))


def make_handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    """Requests for a receiver; only POST is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not size.isdigit() or int(size) > MOST_BYTES:
                self._answer(411 if not size.isdigit() else 413)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(receiver.take(self.rfile.read(int(size)), headers))
            receiver.answered()

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: what matters is printed."""

    return Handler
