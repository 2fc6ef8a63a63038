"""The audit, read page by page. Core writes its lines (``corelane.store.audit``)."""

import re

from corelane.domain.audit import AuditEntry, AuditList
from corelane.domain.ids import iso_time
from corelane.store import keys
from corelane.store.link.link import CommonLink, texts

#: Lines read in one round trip.
TRIP_LINES = 500

#: The form of a line's id.
LINE_ID = re.compile(r"\d{1,15}-\d{1,10}")


async def read_audit(
    link: CommonLink, after: str | None = None, limit: int = 50, owner: str | None = None
) -> AuditList:
    """Read lines older than the line with the id ``after``, newest first; with an owner, only the owner's lines."""
    end, found = "+" if after is None else f"({after}", list[AuditEntry]()
    while True:
        count = TRIP_LINES if owner is not None else limit - len(found) + 1
        lines = await link("XREVRANGE", keys.AUDIT, end, "-", "COUNT", count)
        entries = [_parse(line_id.decode(), texts(flat)) for line_id, flat in lines]
        found += [entry for entry in entries if owner in (None, entry.owner)]
        if len(found) > limit:
            return AuditList(data=found[:limit], has_more=True, next=found[limit - 1].id)
        if len(lines) < count:
            return AuditList(data=found, has_more=False, next=None)
        end = f"({entries[-1].id}"


def _parse(line_id: str, values: dict[str, str]) -> AuditEntry:
    fields = {name: values.get(name, "") for name in ("key", "owner", "action", "subject", "detail")}
    return AuditEntry(id=line_id, at=iso_time(int(line_id.partition("-")[0])), **fields)
