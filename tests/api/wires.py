"""Raw connections to a service, and how the kernel says its ends of them stand."""

import socket
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from tests.api.conftest import Service

ESTABLISHED, LISTEN = "01", "0A"


def connect(service: Service) -> socket.socket:
    """Open a connection."""
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 20)


def request(method: str, path: str, body: Any = None, *headers: str) -> bytes:
    """Return a request's bytes."""
    content = b"" if body is None else orjson.dumps(body)
    head = (f"{method} {path} HTTP/1.1", "Host: here", "Content-Type: application/json", *headers)
    return "\r\n".join((*head, f"Content-Length: {len(content)}", "", "")).encode() + content


def send(service: Service, method: str, path: str, body: Any = None, *headers: str) -> socket.socket:
    """Send a request, and do not read what comes."""
    caller = connect(service)
    caller.sendall(request(method, path, body, *headers))
    return caller


def connections(service: Service) -> Counter[str]:
    """Count the service's ends of connections by their state, as the kernel numbers them."""
    port = f":{int(service.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return Counter(row[3] for row in rows if row[1].endswith(port) and row[9] != "0" and row[3] != LISTEN)
