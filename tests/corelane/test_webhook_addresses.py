"""Hostile addresses: each refused, logged, and nothing connected."""

import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any

import pytest
import structlog

from corelane.errors import WebhookRefused
from corelane.settings import Settings
from corelane.webhooks.addresses import check_address
from tests.tools.receivers import Listener, listener, post_event, receiver

LOCAL = Settings(webhook_allowed_networks="127.0.0.0/8", webhook_timeout_s=30)

#: Private networks that hold none of the addresses below: any port passes, so that only the address can be refused.
ELSEWHERE = Settings(webhook_allowed_networks="198.51.100.0/24", webhook_timeout_s=30)

STRICT = Settings(webhook_timeout_s=30)

#: Hosts that are, or lead to, somewhere private.
HOSTS = [
    *("127.0.0.1", "127.1", "localhost.", "LOCALHOST", "2130706433", "0x7f.0.0.1", "017700000001", "0.0.0.0", "0"),
    *("[::]", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::169.254.169.254]", "[64:ff9b:1::a9fe:a9fe]"),
    *("[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "[ff02::1]"),
    *("10.0.0.8", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.192", "198.18.0.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "[::ffff:168.63.129.16]", "[64:ff9b::a83f:8110]"),
    *("①②⑦.⓪.⓪.①", "127。0。0。1", "١٢٧.0.0.1", "ⓁⓄⒸⒶⓁⒽⓄⓈⓉ"),
    *("user:secret@127.0.0.1", "127.0.0.1\\@93.184.216.34", "93.184.216.34%2f@127.0.0.1", "127.0.0.1%00.example.com"),
]

#: URLs that are refused as they stand.
URLS = [
    "https://127.0.0.1\r\nHost: example.com/",
    "https://93.184.216.34/\r\nX-Injected: 1",
    "https://93.184.216.34 @127.0.0.1/",
    "https://\t127.0.0.1/",
    "https://93.184.216.34:0/",
    "https://93.184.216.34:22/",
    "https://93.184.216.34:99999/",
    "https://93.184.216.34:443@127.0.0.1:80/",
    "https://93.184.216.34:４４３/",
    "https://:443/",
    "https:///x",
    "http://93.184.216.34/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "unix:///var/run/docker.sock",
    "//127.0.0.1/",
]


@pytest.fixture
def trap() -> Iterator[Listener]:
    with listener() as found:
        yield found


def answers(*lists: Sequence[str]) -> Any:
    """Return a resolver that answers each question with the next list, the last one for ever; count the questions."""
    asked = []

    def resolve(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        found = lists[min(len(asked), len(lists)) - 1]
        return [
            (
                socket.AF_INET6 if ":" in ip else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (ip, port, 0, 0) if ":" in ip else (ip, port),
            )
            for ip in found
        ]

    resolve.asked = asked  # type: ignore[attr-defined]
    return resolve


def to_loopback_at_worst(*question: Any) -> Any:
    """Replace the system's resolver; names it does not know are here, as they would be on another machine."""
    try:
        return socket.getaddrinfo(*question)
    except socket.gaierror:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", question[1]))]


@pytest.mark.parametrize("host", HOSTS)
def test_host_that_leads_to_a_private_place_is_refused_and_never_connected_to(host: str, trap: Listener) -> None:
    for settings, place in ((STRICT, f"https://{host}/x"), (ELSEWHERE, f"http://{host}:{trap.port}/x")):
        with pytest.raises(WebhookRefused, match="CORELANE_WEBHOOK_ALLOWED_NETWORKS"):
            check_address(settings, place, to_loopback_at_worst)
        with structlog.testing.capture_logs() as logged:
            reply = post_event(settings, place, {}, b"{}", resolver=to_loopback_at_worst)
        assert reply.status == 0
        assert "refused" in (reply.error or "")
        assert [line["event"] for line in logged] == ["webhook_address_refused"]
    assert trap.connections == 0


@pytest.mark.parametrize("url", URLS)
def test_url_that_is_no_plain_https_address_is_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        check_address(STRICT, url)
    assert "refused" in (post_event(STRICT, url, {}, b"{}").error or "")


@pytest.mark.parametrize(
    "private",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "fe80::1"],
)
def test_name_that_is_rebound_to_a_private_address_is_refused_at_the_attempt(private: str, trap: Listener) -> None:
    url = f"http://rebound.example:{trap.port}/"
    rebound = answers(["198.51.100.7"], [private])
    check_address(ELSEWHERE, url, rebound)
    assert "refused" in (post_event(ELSEWHERE, url, {}, b"{}", resolver=rebound).error or "")
    assert len(rebound.asked) == 2
    both = answers(["93.184.216.34", private])
    assert "refused" in (post_event(STRICT, "https://both.example/", {}, b"{}", resolver=both).error or "")
    assert trap.connections == 0


def test_name_is_resolved_once_and_the_checked_address_is_connected_to() -> None:
    with receiver() as found:
        port = found.url.rpartition(":")[2].partition("/")[0]
        names = answers(["127.0.0.1"], ["10.255.255.1"])
        reply = post_event(LOCAL, f"http://once.example:{port}/hook", {"webhook-id": "x"}, b"{}", resolver=names)
    assert reply.status == 204
    assert names.asked == ["once.example"]
    assert found.posts[0].headers["host"] == f"once.example:{port}"


def test_redirect_to_a_private_place_is_not_followed(trap: Listener) -> None:
    for status in (301, 302, 303, 307, 308):
        location = {"Location": f"http://127.0.0.1:{trap.port}/latest/meta-data", "X-Status": str(status)}
        with receiver(lambda _, s=status, to=location: (s, to, b"")) as found:  # type: ignore[misc]
            reply = post_event(LOCAL, found.url, {}, b"{}")
        assert (reply.status, reply.error) == (status, "redirects are not followed")
    assert trap.connections == 0


def test_allowed_network_is_let_pass_by_http_and_on_any_port_and_nothing_else_is() -> None:
    check_address(LOCAL, "http://127.0.0.1:9000/x")
    for url in ("http://10.0.0.8/x", "http://93.184.216.34/x", "https://93.184.216.34:8443/x"):
        with pytest.raises(WebhookRefused):
            check_address(LOCAL, url)


def test_public_address_is_let_pass_and_plain_http_where_it_is_allowed() -> None:
    check_address(STRICT, "https://93.184.216.34/x")
    check_address(STRICT, "https://93.184.216.34:80/x")
    check_address(Settings(webhook_allow_http=True), "http://93.184.216.34/x")
    with pytest.raises(WebhookRefused):
        check_address(Settings(webhook_allow_http=True), "http://10.0.0.1/x")


def test_name_that_does_not_resolve_yet_is_let_pass() -> None:
    def unknown(*_: object) -> Any:
        raise socket.gaierror("no such name")

    check_address(STRICT, "https://later.example/x", unknown)
    assert "no such name" in (post_event(STRICT, "https://later.example/x", {}, b"", resolver=unknown).error or "")


def test_allowed_networks_are_read_as_networks() -> None:
    assert LOCAL.webhook_allowed_networks == (ip_network("127.0.0.0/8"),)
