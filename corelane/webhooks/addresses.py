"""Where a webhook may go: a name is resolved once, every answer is checked, and only what was checked is connected to.

Public addresses by https on ports 80 and 443; private, loopback, link-local, metadata, shared (CGN), translated (NAT64,
6to4, mapped) and reserved ones are refused. On networks that the operator allows, which are the operator's own, http
and any port will do. Behind a proxy, names are the proxy's to resolve and to guard; what a URL itself says is checked
here all the same.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from ssrfguard import Address, Policy, Resolver, SSRFGuardError, Target, resolve

from corelane.errors import WebhookRefused
from corelane.log import get_logger
from corelane.settings import Settings

log = get_logger(__name__)

#: Ports of receivers on the public internet.
PUBLIC_PORTS = frozenset({80, 443})

#: Addresses of a name that are tried, in the resolver's order.
MOST_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Route:
    """A receiver that may be reached: its origin, and the addresses that were checked; none of them behind a proxy."""

    target: Target
    addresses: tuple[Address, ...]
    policy: Policy


def find_route(settings: Settings, url: str, resolver: Resolver | None = None) -> Route:
    """Resolve and check; raises WebhookRefused saying which setting helps, or OSError if the name does not resolve.

    ``resolver`` stands in for ``socket.getaddrinfo``; whatever it answers is checked.
    """
    try:
        if settings.webhook_proxy is not None:
            policy = _public_policy(settings)
            return Route(policy.check_url(url), (), policy)
        return _resolved(settings, url, resolver)
    except (SSRFGuardError, UnicodeError) as error:
        reason = getattr(error, "reason", None) or str(error)
        log.info("webhook_address_refused", reason=reason)
        raise WebhookRefused(
            f"the webhook's address is refused: {reason}. It must be https on port 443 or 80 of a public host; the "
            "operator may allow private networks in CORELANE_WEBHOOK_ALLOWED_NETWORKS, where http and any port will "
            "do, and plain http elsewhere with CORELANE_WEBHOOK_ALLOW_HTTP"
        ) from None


def check_address(settings: Settings, url: str, resolver: Resolver | None = None) -> None:
    """Refuse an address that no delivery would be allowed to reach; raises WebhookRefused.

    A name that does not resolve now is let pass: the receiver may not be up yet, and every attempt checks again.
    """
    try:
        find_route(settings, url, resolver)
    except OSError:
        return


def _resolved(settings: Settings, url: str, resolver: Resolver | None) -> Route:
    public = _public_policy(settings)
    networks = settings.webhook_allowed_networks
    if not networks:
        target = public.check_url(url)
        return Route(target, resolve(target, policy=public, resolver=resolver), public)
    own = Policy(allowed_networks=networks, allowed_ports=_port_of(url))
    target = own.check_url(url)
    addresses = resolve(target, policy=own, resolver=resolver)
    if all(any(address.ip in network for network in networks) for address in addresses):
        return Route(target, addresses, own)
    public.check_url(url)
    for address in addresses:
        public.check_address(address.ip)
    return Route(target, addresses, public)


def _public_policy(settings: Settings) -> Policy:
    schemes = {"https", "http"} if settings.webhook_allow_http else {"https"}
    return Policy(allowed_schemes=frozenset(schemes), allowed_ports=PUBLIC_PORTS)


def _port_of(url: str) -> frozenset[int]:
    """The port a URL names, if it is one, beside the public ones."""
    try:
        port = urlsplit(url).port
    except ValueError:
        port = None
    return PUBLIC_PORTS | {port} if port else PUBLIC_PORTS
