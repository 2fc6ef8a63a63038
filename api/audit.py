"""Who did what: a line of the log for each action that steers the service, or is done to another owner's data."""

from corelane.domain.api_keys import Caller
from corelane.log import get_logger

log = get_logger(__name__)


def audit(who: Caller, action: str, subject: str, detail: str = "") -> None:
    """Write the line ``audit``: which key of which owner did what, and to what."""
    log.info("audit", key=who.name, owner=who.owner, action=action, subject=subject, detail=detail)
