"""References of a job that is submitted: whether its input and output may lie where it says. Nothing is fetched here.

An address is checked here for the caller's sake, and each time it is used for the service's sake.
"""

from corelane.domain.job_references import without_query
from corelane.errors import Overloaded, UrlRefused
from corelane.plugins.files.references.addresses import check_reference
from corelane.plugins.files.references.urls import is_allowed
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.store.jobs.store import JobStore

#: Jobs whose input waits to be read, in all; their work is not known yet, so that no other bound holds them back.
MOST_WAITING = 10_000

#: When a caller comes back if there are as many, in seconds.
RETRY_AFTER_S = 5


async def check_url(settings: Settings, store: JobStore, name: str, url: str, owner: str) -> None:
    """Raise UrlRefused for an `input_url` or `output_url` that may not be used, Overloaded if too many inputs wait."""
    await require_allowed(settings, name, url, owner)
    if name == "input_url" and await store.unread_inputs() >= MOST_WAITING:
        raise Overloaded(f"the inputs of {MOST_WAITING:,} jobs wait to be read: come back later", RETRY_AFTER_S)


async def require_allowed(settings: Settings, name: str, url: str, owner: str) -> None:
    """Raise UrlRefused for a URL that the operator does not allow, or whose address is refused."""
    fields, setting = settings.of(FilesFields), f"CORELANE_{name.upper()}S"
    allowed = fields.input_urls if name == "input_url" else fields.output_urls
    if not allowed:
        raise UrlRefused(f"this service takes no `{name}`: its operator has not set {setting}")
    if not is_allowed(url, allowed, owner):
        raise UrlRefused(
            f"`{name}` {without_query(url)[:200]!r} is refused: it begins with none of the URLs that the operator "
            f"allows in {setting}, or is not the URL of one object"
        )
    if not url.startswith("s3://"):
        await check_reference(settings, url)
