"""Check where a job's input and output may be. Addresses are checked like those of webhooks, by separate rules.

An address is checked at submission, so that the caller learns of it, and at each use, to protect the service.
"""

import asyncio
from contextlib import suppress

from ssrfguard import Resolver, SSRFGuardError

from corelane.domain.job_references import without_query
from corelane.errors import Overloaded, UrlRefused
from corelane.log import get_logger
from corelane.plugins.files.references.urls import is_allowed
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.store.jobs.store import JobStore
from corelane.webhooks.addresses import RESOLVE_S, Route, Rules, find_checked, reason_of

log = get_logger(__name__)

#: Most jobs whose input waits to be read, in all. Their work is not known yet, so no other limit applies to them.
MOST_WAITING = 10_000

#: When a caller may try again if that limit is reached, in seconds.
RETRY_AFTER_S = 5


async def check_url(settings: Settings, store: JobStore, name: str, url: str, owner: str) -> None:
    """Raise UrlRefused for an `input_url` or `output_url` that is not allowed, Overloaded if too many inputs wait."""
    await require_allowed(settings, name, url, owner)
    if name == "input_url" and await store.unread_inputs() >= MOST_WAITING:
        raise Overloaded(f"the inputs of {MOST_WAITING:,} jobs wait to be read: come back later", RETRY_AFTER_S)


async def require_allowed(settings: Settings, name: str, url: str, owner: str) -> None:
    """Raise UrlRefused for a URL that the operator does not allow, or whose address is refused."""
    fields, setting = settings.of(FilesFields), f"CORELANE_{name.upper()}S"
    allowed = fields.input_urls if name == "input_url" else fields.output_urls
    if not allowed:
        raise UrlRefused(f"this service takes no such URL: its operator has not set {setting}")
    if not is_allowed(url, allowed, owner):
        raise UrlRefused(
            f"the URL {without_query(url)[:200]!r} is refused: it begins with no URL that the operator allows in "
            f"{setting}, or is not the URL of one object"
        )
    if not url.startswith("s3://"):
        # An unknown name is an OSError, as is a TimeoutError. Every later attempt checks again.
        with suppress(OSError):
            await asyncio.wait_for(asyncio.to_thread(find_reference_route, settings, url), RESOLVE_S)


def find_reference_route(settings: Settings, url: str, resolver: Resolver | None = None) -> Route:
    """Resolve and check an allowed URL; its prefix says if plain http will do. Raise UrlRefused, or OSError."""
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
