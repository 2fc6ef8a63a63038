"""The audit log: one line for each action of an admin, or on data of another owner. The last 10,000 are kept.

A line is written after its action. If Redis cannot take the line, the action stands, and the line is only in the log.
"""

from corelane.domain.api_keys import Caller
from corelane.domain.audit import AuditAction
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.store import keys
from corelane.store.link.link import CommonLink, flatten

log = get_logger(__name__)

#: Lines that are kept.
KEPT_LINES = 10_000

#: Longest detail, in characters.
DETAIL_CHARS = 1000


class Audit:
    """Writes the audit lines."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def write(self, who: Caller, action: AuditAction, subject: str, detail: str = "") -> None:
        """Write a line; log it instead of raising an error if Redis cannot take it."""
        log.info("audit", key=who.name, owner=who.owner, action=action.value, subject=subject, detail=detail)
        try:
            await write_line(self._link, who, action, subject, detail)
        except Unavailable as error:
            log.error("audit_not_kept", detail=error.detail)


async def write_line(link: CommonLink, who: Caller, action: AuditAction, subject: str, detail: str = "") -> None:
    """Write a line; raise Unavailable if Redis cannot take it."""
    fields = {"key": who.name, "owner": who.owner, "action": action.value}
    fields |= {"subject": subject[:DETAIL_CHARS], "detail": detail[:DETAIL_CHARS]}
    await link("XADD", keys.AUDIT, "MAXLEN", "~", KEPT_LINES, "*", *flatten(fields))
