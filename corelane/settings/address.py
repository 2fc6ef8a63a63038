"""The address of Redis, as one URL says it: one server, a socket file, or the primary that Sentinels name. Pure.

redis://[user:password@]host[:6379][/db]
rediss://…?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE&ssl_cert_reqs=…&ssl_check_hostname=…
redis+sentinel://[user:password@]host[:26379][,host[:26379]…]/NAME[/db][?sentinel_username=…&sentinel_password=…]
rediss+sentinel://…     TLS to the Sentinels and to the servers, with the same files
unix:///path/to/redis.sock[?db=1]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

#: The port of a Sentinel if the URL has none.
SENTINEL_PORT = 26379

#: Names that a URL's query may have: options of TLS, then options of every connection.
TLS_NAMES = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password"),
    *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
)
PLAIN_NAMES = (
    *("db", "username", "password", "client_name", "socket_timeout", "socket_connect_timeout", "socket_keepalive"),
    *("health_check_interval", "max_connections"),
)
SENTINEL_NAMES = ("sentinel_username", "sentinel_password")

#: How strictly the server's certificate is checked.
CERT_REQS = ("required", "optional", "none")

#: Suffix of schemes with which Sentinels are asked.
BY_SENTINELS = "+sentinel"


class AddressRefused(ValueError):
    """A URL of a Redis cannot be used. The text says why, without quoting the URL."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis listens.

    ``url`` is a URL that redis-py reads. With Sentinels its host is the primary's name, to be replaced by the address
    that they give.
    """

    url: str
    sentinels: tuple[tuple[str, int], ...] = ()
    primary: str = ""
    #: User and password for the Sentinels themselves.
    sentinel_login: tuple[str | None, str | None] = (None, None)
    #: The options of TLS in the URL; always empty without TLS.
    tls: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self.url.startswith("rediss://")

    @property
    def db(self) -> str:
        """Return the number of the database."""
        parts = urlsplit(self.url)
        named = dict(parse_qsl(parts.query)).get("db")
        return named or ("" if parts.scheme == "unix" else parts.path.strip("/")) or "0"


def read_address(url: str) -> RedisAddress:
    """Parse a URL; raise ValueError with what is wrong."""
    scheme, _, rest = url.partition("://")
    if scheme.endswith(BY_SENTINELS):
        return _by_sentinels(scheme.removesuffix(BY_SENTINELS), rest)
    parts = urlsplit(url)
    query = _query(parts.query, parts.scheme == "rediss", PLAIN_NAMES)
    if parts.scheme == "unix":
        if len(parts.path) < 2 or parts.hostname:
            raise AddressRefused("a socket file is `unix:///path/to/redis.sock`")
        return RedisAddress(url)
    if parts.scheme not in ("redis", "rediss") or not re.fullmatch(r"/?\d*/?", parts.path):
        raise ValueError("not the URL of a Redis")
    if parts.port == 0:  # .port itself raises ValueError if it is not a port
        raise ValueError("port 0 is no address")
    return RedisAddress(url, tls=_tls(query))


def _by_sentinels(scheme: str, rest: str) -> RedisAddress:
    """Parse ``[user:password@]host:port,…/NAME[/db]?…``."""
    if scheme not in ("redis", "rediss"):
        raise ValueError("not the URL of a Redis")
    rest, _, asked = rest.partition("?")
    place, _, path = rest.partition("/")
    login, at, hosts = place.rpartition("@")
    found = re.fullmatch(r"([^/]+)(?:/(\d+))?/?", path)
    if not found:
        raise AddressRefused("the name of the primary, as the Sentinels know it, is missing: `/NAME/0` after the hosts")
    query = _query(asked, scheme == "rediss", (*PLAIN_NAMES, *SENTINEL_NAMES))
    kept = urlencode({name: value for name, value in query.items() if name not in SENTINEL_NAMES})
    url = f"{scheme}://{login}{at}{found[1]}/{found[2] or 0}" + (f"?{kept}" if kept else "")
    return RedisAddress(
        url,
        tuple(_host(each) for each in hosts.split(",")),
        unquote(found[1]),
        (query.get("sentinel_username"), query.get("sentinel_password")),
        _tls(query),
    )


def _host(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.port == 0:
        raise AddressRefused("a Sentinel is named as `host:26379`, several with commas")
    return parts.hostname, parts.port or SENTINEL_PORT


def _query(text: str, is_tls: bool, names: tuple[str, ...]) -> dict[str, str]:
    """Parse the query; raise ValueError for a name that has no meaning here."""
    query = dict(parse_qsl(text, keep_blank_values=True))
    allowed = (*names, *TLS_NAMES) if is_tls else names
    for name, value in query.items():
        if name not in allowed:
            said = "needs `rediss://`" if name in TLS_NAMES else "is not known"
            raise AddressRefused(f"`{name}` {said}")
        if name == "ssl_cert_reqs" and value not in CERT_REQS:
            raise AddressRefused(f"`ssl_cert_reqs` is one of {', '.join(CERT_REQS)}")
    return query


def _tls(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name in TLS_NAMES}


def local_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on ``host``, for callers on the same machine."""
    near = reachable(host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def reachable(host: str) -> str:
    """Return an address of a server that listens on ``host``: loopback, if that stands for all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared only
