"""Proxies in front of the service, and the host names under which it is reached."""

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

#: Endings of names that cannot be registered in the public DNS.
PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa", ".test")

#: Host headers for which the decision is cached.
REMEMBERED = 256


#: The scope's key for the path below which a trusted proxy serves this service, and the form of such a path.
PREFIX, PREFIX_FORM = "corelane.prefix", re.compile(r"(?:/[A-Za-z0-9._~-]+){1,20}/?")


def forwarded(scope: Scope, hops: int) -> dict[str, Any]:
    """Return the scope's entries as trusted proxies report them: the caller's address; the scheme, host and path used.

    Each proxy appends what it saw, so with N trusted proxies the N-th value from the right is the last trustworthy one.
    Hypercorn 0.18's own middleware for this copies the whole scope, which fails inside an application.
    """
    headers = Headers(scope=scope)

    def trusted(name: str) -> str:
        values = [part.strip() for value in headers.getlist(name) for part in value.split(",")]
        return values[-hops] if len(values) >= hops else ""

    changes: dict[str, Any] = {}
    if client := trusted("x-forwarded-for"):
        changes["client"] = (client, 0)
    if (scheme := trusted("x-forwarded-proto")) in ("http", "https"):
        changes["scheme"] = scheme
    if host := trusted("x-forwarded-host"):
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        changes["headers"] = [*others, (b"host", host.encode("latin-1"))]
    if PREFIX_FORM.fullmatch(prefix := trusted("x-forwarded-prefix")):
        changes[PREFIX] = prefix.rstrip("/").encode()
    return changes


def is_allowed(address: str, hosts: Sequence[str]) -> bool:
    """Return whether the name in a Host header is in the list; ``*.example.org`` means every name below it."""
    host = host_name(address)
    return any(host == name or name == "*" or (name.startswith("*.") and host.endswith(name[1:])) for name in hosts)


@lru_cache(REMEMBERED)
def is_private(address: str) -> bool:
    """Return whether a Host header has an address, or a name outside the public DNS.

    This protects against web pages whose own name resolves to this machine (DNS rebinding).
    """
    host = host_name(address).removesuffix(".")
    try:
        ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(PRIVATE_ENDINGS)
    return True


def host_name(address: str) -> str:
    """Return the name in a Host header in lower case, without the port; for IPv6 the address without brackets."""
    text = address.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text
