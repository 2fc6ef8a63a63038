"""The address of Redis in Celery's own terms, for what Celery and Flower show and query themselves.

Connections of workers and senders do not use it: ``transport`` makes them from the URL in the settings.
"""

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from corelane.settings.address import RedisAddress, read_address

#: Python's constants for the three values of ``ssl_cert_reqs``.
CERT_REQS = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """``broker_url``, ``broker_use_ssl`` and additions to ``broker_transport_options``."""

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
