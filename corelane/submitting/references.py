"""References of a job that is submitted: whether its input and output may lie where it says. Nothing is fetched here.

An address is checked here for the caller's sake, and each time it is used for the service's sake.
"""

from corelane.domain.references import is_allowed, without_query
from corelane.errors import Overloaded, UrlRefused
from corelane.settings import Settings
from corelane.store.jobs.store import JobStore
from corelane.webhooks import check_reference

#: Jobs whose input waits to be read, in all; their work is not known yet, so that no other bound holds them back.
MOST_WAITING = 10_000

#: When a caller comes back if there are as many, in seconds.
RETRY_AFTER_S = 5


async def check_input(settings: Settings, store: JobStore, url: str, owner: str) -> None:
    """Raise UrlRefused for an input that may not be read, Overloaded if too many wait to be."""
    await _check(settings, "input_url", url, settings.input_urls, owner)
    if await store.unread_inputs() >= MOST_WAITING:
        raise Overloaded(f"the inputs of {MOST_WAITING:,} jobs wait to be read: come back later", RETRY_AFTER_S)


async def check_output(settings: Settings, url: str, owner: str) -> None:
    """Raise UrlRefused for an output that may not be written."""
    await _check(settings, "output_url", url, settings.output_urls, owner)


async def _check(settings: Settings, name: str, url: str, allowed: tuple[str, ...], owner: str) -> None:
    setting = f"CORELANE_{name.upper()}S"
    if not allowed:
        raise UrlRefused(f"this service takes no `{name}`: its operator has not set {setting}")
    if not is_allowed(url, allowed, owner):
        raise UrlRefused(
            f"`{name}` {without_query(url)[:200]!r} is refused: it begins with none of the URLs that the operator "
            f"allows in {setting}, or is not the URL of one object"
        )
    if not url.startswith("s3://"):
        await check_reference(settings, url)
