"""Inputs and outputs over http: the hostile addresses of webhooks are refused here alike, and nothing connected."""

import io
from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from corelane.errors import UrlRefused
from corelane.plugins.files.references.checks import find_reference_route
from corelane.plugins.files.references.fetch import get, put
from corelane.plugins.files.references.urls import is_allowed
from corelane.settings import Settings
from tests.corelane.test_webhook_addresses import HOSTS, URLS, to_loopback_at_worst
from tests.tools.receivers import Listener, listener

#: Any host may be named, by http too.
OPEN = ("https://*/", "http://*/")

STRICT = Settings(input_urls=OPEN, output_urls=OPEN)

#: Private networks that hold none of the addresses: any port passes, so that only the address can be refused.
ELSEWHERE = STRICT.model_copy(update={"reference_allowed_networks": (ip_network("198.51.100.0/24"),)})


@pytest.fixture
def trap() -> Iterator[Listener]:
    with listener() as found:
        yield found


@pytest.mark.parametrize("host", HOSTS)
def test_host_that_leads_to_a_private_place_is_never_connected_to(host: str, trap: Listener) -> None:
    for settings, url in ((STRICT, f"https://{host}/x"), (ELSEWHERE, f"http://{host}:{trap.port}/x")):
        with (
            pytest.raises(UrlRefused, match="CORELANE_REFERENCE_ALLOWED_NETWORKS"),
            get(settings, url, {}, lambda _: True, resolver=to_loopback_at_worst),
        ):
            pass
        with pytest.raises(UrlRefused):
            put(settings, url, {"content-length": "1"}, io.BytesIO(b"x"), resolver=to_loopback_at_worst)
    assert trap.connections == 0


@pytest.mark.parametrize("url", [url for url in URLS if not url.startswith("http://93")])
def test_url_that_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(UrlRefused), get(STRICT, url, {}, lambda _: True):
        pass


def test_user_in_a_url_is_refused_before_anything_is_resolved() -> None:
    assert not is_allowed("https://user:secret@example.com/a", OPEN, "ada")
    assert not is_allowed("https://example.com\\@127.0.0.1/a", OPEN, "ada")
    assert is_allowed("https://example.com/a", OPEN, "ada")


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "168.63.129.16", "100.100.100.200", "[fd00:ec2::254]", "192.0.0.192"]
)
def test_address_of_a_cloud_s_own_services_is_none_for_an_input_either(host: str) -> None:
    with pytest.raises(UrlRefused, match="may allow private networks"):
        find_reference_route(STRICT, f"https://{host}/a")
