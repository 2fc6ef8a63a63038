"""The audit: one line for each action that steered the service or touched what others own. The last 10,000 are kept.

A line is written once its action is done. If Redis cannot take it, the action stands, and the line is in the log alone.
"""

import re
from dataclasses import dataclass

from corelane.domain.api_keys import Caller
from corelane.domain.audit import AuditAction, AuditEntry
from corelane.domain.ids import iso_time
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.store import keys
from corelane.store.link.link import CommonLink, flatten, texts

log = get_logger(__name__)

#: Lines that are kept.
KEPT_LINES = 10_000

#: Lines read in one trip.
TRIP_LINES = 500

#: The form of a line's id.
LINE_ID = re.compile(r"\d{1,15}-\d{1,10}")

#: Longest detail, in characters.
DETAIL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some lines, newest first, and the cursor of the next page, None at the end."""

    entries: list[AuditEntry]
    next: str | None


class Audit:
    """Writes the lines and reads them."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def write(self, who: Caller, action: AuditAction, subject: str, detail: str = "") -> None:
        """Write a line; never raise because Redis cannot take it."""
        log.info("audit", key=who.name, owner=who.owner, action=action.value, subject=subject, detail=detail)
        try:
            await write_line(self._link, who, action, subject, detail)
        except Unavailable as error:
            log.error("audit_not_kept", detail=error.detail)

    async def page(self, after: str | None = None, limit: int = 50, owner: str | None = None) -> AuditPage:
        """Read lines, newest first, older than the one whose id is the cursor; with an owner, that owner's alone."""
        end, found = "+" if after is None else f"({after}", list[AuditEntry]()
        while True:
            count = TRIP_LINES if owner is not None else limit - len(found) + 1
            lines = await self._link("XREVRANGE", keys.AUDIT, end, "-", "COUNT", count)
            entries = [_parse(line_id.decode(), texts(flat)) for line_id, flat in lines]
            found += [entry for entry in entries if owner in (None, entry.owner)]
            if len(found) > limit:
                return AuditPage(found[:limit], found[limit - 1].id)
            if len(lines) < count:
                return AuditPage(found, None)
            end = f"({entries[-1].id}"


async def write_line(link: CommonLink, who: Caller, action: AuditAction, subject: str, detail: str = "") -> None:
    """Write a line; raise Unavailable if Redis cannot take it."""
    fields = {"key": who.name, "owner": who.owner, "action": action.value}
    fields |= {"subject": subject[:DETAIL_CHARS], "detail": detail[:DETAIL_CHARS]}
    await link("XADD", keys.AUDIT, "MAXLEN", "~", KEPT_LINES, "*", *flatten(fields))


def _parse(line_id: str, values: dict[str, str]) -> AuditEntry:
    fields = {name: values.get(name, "") for name in ("key", "owner", "action", "subject", "detail")}
    return AuditEntry(id=line_id, at=iso_time(int(line_id.partition("-")[0])), **fields)
