"""Addresses: shown without their passwords, refused where they cannot be one, reached from this machine."""

import re
from urllib.parse import urlsplit

from corelane.errors import SetupError

#: What a URL's query may carry that is nobody's business.
SECRET_QUERY = re.compile(r"(?<=[?&])(username|password)=[^&#]*")

EXAMPLE = "redis://127.0.0.1:6379/0"


def without_password(url: str) -> str:
    """A URL that may be shown: nothing of the user and the password, even where they hold ``@`` or ``/``."""
    head, at, tail = url.rpartition("@")
    scheme, separator, _ = head.partition("://")
    shown = f"{scheme if separator else ''}{separator}***@{tail}" if at else url
    return SECRET_QUERY.sub(r"\1=***", shown)


def check_redis_url(url: str) -> None:
    """Raise SetupError saying what is wrong, unless this is the URL of a Redis."""
    shown = without_password(url)
    if "://" not in url:
        raise SetupError(f"{shown} is no URL of a Redis: it lacks redis:// at its beginning, as in {EXAMPLE}")
    scheme = url.partition("://")[0]
    if scheme not in ("redis", "rediss"):
        raise SetupError(f"{shown} is no URL of a Redis: it begins with {scheme}://, not redis:// or rediss://")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SetupError(f"{shown} is no URL of a Redis: its port is no number from 1 to 65535") from None
    if not parts.hostname or port == 0:
        raise SetupError(f"{shown} is no URL of a Redis: it names no host or port, as {EXAMPLE} does")
    if not re.fullmatch(r"/?|/[0-9]+", parts.path):
        raise SetupError(f"{shown} is no URL of a Redis: its database {parts.path[1:]} is no number")


def http_url(host: str, port: int) -> str:
    """Where what listens on ``host`` is reached from this machine."""
    near = reachable(host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def reachable(host: str) -> str:
    """An address of what listens on ``host``: all addresses include loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared only
