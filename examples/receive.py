"""Receive webhooks on a port of this machine until one is verified with CORELANE_WEBHOOK_SECRET, and print it."""

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

from corelane.client import verify_webhook
from corelane.errors import SignatureRefused


class Receiver(BaseHTTPRequestHandler):
    """Replies 204 to a webhook of the service, and 401 to anything else that is posted."""

    event: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            Receiver.event = verify_webhook(body, dict(self.headers), os.environ["CORELANE_WEBHOOK_SECRET"])
        except SignatureRefused as error:
            print("refused:", error.detail)
        self.send_response(204 if Receiver.event else 401)
        self.end_headers()


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
while not Receiver.event:
    server.handle_request()
job = Receiver.event["data"]
print(Receiver.event["type"], job["id"], job["status"])
