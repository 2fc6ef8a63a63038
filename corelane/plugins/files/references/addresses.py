"""Where a job's input or output may be: addresses are checked as those of webhooks are, by rules of their own."""

import asyncio

from ssrfguard import Resolver, SSRFGuardError

from corelane.errors import UrlRefused
from corelane.log import get_logger
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.webhooks.addresses import RESOLVE_S, Route, Rules, find_checked, reason_of

log = get_logger(__name__)


def find_reference_route(settings: Settings, url: str, resolver: Resolver | None = None) -> Route:
    """Resolve and check the URL of an input or output, whose beginning is one that the operator allows.

    Plain http was allowed by that beginning. Raise UrlRefused, or OSError for an unknown name.
    """
    rules = Rules(settings.webhook_proxy, settings.of(FilesFields).reference_allowed_networks, url.startswith("http:"))
    try:
        return find_checked(rules, url, resolver)
    except (SSRFGuardError, UnicodeError) as error:
        reason = reason_of(error)
        log.info("reference_address_refused", reason=reason)
        raise UrlRefused(
            f"the address of the URL is refused: {reason}. It must be port 443 or 80 of a public host; the operator "
            "may allow private networks in CORELANE_REFERENCE_ALLOWED_NETWORKS, where any port will do"
        ) from None


async def check_reference(settings: Settings, url: str) -> None:
    """Check the address of an input or output as ``check_receiver`` does; raise UrlRefused."""
    try:
        await asyncio.wait_for(asyncio.to_thread(find_reference_route, settings, url), RESOLVE_S)
    except OSError:  # a TimeoutError is one: every attempt checks again
        return
