"""Which addresses a webhook may go to: resolve a name once, check every address, connect only to checked ones.

Public addresses are reached by https on ports 80 and 443. Private, loopback, link-local, metadata, shared (CGN),
translated (NAT64, 6to4, mapped) and reserved addresses are refused. Networks that the operator allows count as the
operator's own: http and any port may be used there. Behind a proxy, the proxy resolves and checks names; an address in
a URL is still checked here.
"""

import asyncio
from dataclasses import dataclass
from ipaddress import ip_network
from urllib.parse import urlsplit

from ssrfguard import (
    DEFAULT_DENIED,
    Address,
    AddressTable,
    Block,
    Policy,
    Reach,
    Resolver,
    SSRFGuardError,
    Target,
    resolve,
)

from corelane.errors import WebhookRefused
from corelane.log import get_logger
from corelane.settings import Network, Settings

log = get_logger(__name__)

#: Ports of receivers on the public internet.
PUBLIC_PORTS = frozenset({80, 443})

#: Azure's own address for its machines (metadata, DNS, agents) is among the public ones.
AZURE = Block(ip_network("168.63.129.16/32"), "Azure's platform address", "Azure", Reach.DENIED)
DENIED = AddressTable((*DEFAULT_DENIED.blocks, AZURE))

#: Most addresses of a name that are tried, in the resolver's order.
MOST_ADDRESSES = 4

#: A webhook's host name must resolve within this time while its job is submitted, in seconds.
RESOLVE_S = 2.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator allows beyond https to public addresses: a proxy, own networks, plain http."""

    proxy: str | None
    networks: tuple[Network, ...]
    allow_http: bool


@dataclass(frozen=True, slots=True)
class Route:
    """A receiver that may be reached: its origin, and its checked addresses, of which there are none behind a proxy."""

    target: Target
    addresses: tuple[Address, ...]


def find_route(settings: Settings, url: str, resolver: Resolver | None = None) -> Route:
    """Resolve and check a URL; raise WebhookRefused, which names a helpful setting, or OSError for an unknown name.

    ``resolver`` replaces ``socket.getaddrinfo``; its replies are checked too.
    """
    rules = Rules(settings.webhook_proxy, settings.webhook_allowed_networks, settings.webhook_allow_http)
    try:
        return find_checked(rules, url, resolver)
    except (SSRFGuardError, UnicodeError) as error:
        reason = reason_of(error)
        log.info("webhook_address_refused", reason=reason)
        raise WebhookRefused(
            f"the webhook's address is refused: {reason}. It must be https on port 443 or 80 of a public host; the "
            "operator may allow private networks in CORELANE_WEBHOOK_ALLOWED_NETWORKS, where http and any port will "
            "do, and plain http elsewhere with CORELANE_WEBHOOK_ALLOW_HTTP"
        ) from None


def check_address(settings: Settings, url: str, resolver: Resolver | None = None) -> None:
    """Raise WebhookRefused for an address that no delivery may reach.

    A name that does not resolve now is accepted: the receiver may not be up yet, and every attempt checks again.
    """
    try:
        find_route(settings, url, resolver)
    except OSError:
        return


async def check_receiver(settings: Settings, url: str) -> None:
    """Check an address within ``RESOLVE_S``; raise WebhookRefused.

    A host that resolves more slowly is accepted, as every attempt checks it again.
    """
    try:
        await asyncio.wait_for(asyncio.to_thread(check_address, settings, url), RESOLVE_S)
    except TimeoutError:
        log.info("webhook_host_slow")


def find_checked(rules: Rules, url: str, resolver: Resolver | None) -> Route:
    """Resolve and check a URL by rules; raise SSRFGuardError, or OSError for an unknown name."""
    if rules.proxy is not None:
        return Route(_public_policy(rules).check_url(url), ())
    public, networks = _public_policy(rules), rules.networks
    if not networks:
        target = public.check_url(url)
        return Route(target, resolve(target, policy=public, resolver=resolver))
    own = Policy(allowed_networks=networks, allowed_ports=_port_of(url))
    target = own.check_url(url)
    addresses = resolve(target, policy=own, resolver=resolver)
    if all(any(address.ip in network for network in networks) for address in addresses):
        return Route(target, addresses)
    public.check_url(url)
    for address in addresses:
        public.check_address(address.ip)
    return Route(target, addresses)


def reason_of(error: Exception) -> str:
    """Return why an address was refused."""
    return getattr(error, "reason", None) or str(error)


def _public_policy(rules: Rules) -> Policy:
    schemes = {"https", "http"} if rules.allow_http else {"https"}
    return Policy(allowed_schemes=frozenset(schemes), denied_networks=DENIED, allowed_ports=PUBLIC_PORTS)


def _port_of(url: str) -> frozenset[int]:
    """Return the public ports, and the port in a URL."""
    try:
        port = urlsplit(url).port
    except ValueError:
        port = None
    return PUBLIC_PORTS | {port} if port else PUBLIC_PORTS
