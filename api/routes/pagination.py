"""Lists in OpenAI's shape: a page of what a caller owns, whose cursor is its last id."""

from collections.abc import Sequence
from typing import Any, TypeVar

from corelane.domain.batches import BatchList, FileList

List = TypeVar("List", FileList, BatchList)


def page_of(kind: type[List], records: Sequence[Any], limit: int) -> List:
    """The first records as a page; read one more than the limit, so that it is known whether others follow."""
    data = [record.describe() for record in records[:limit]]
    ends = {"first_id": data[0].id, "last_id": data[-1].id} if data else {}
    return kind(data=data, has_more=len(records) > limit, **ends)
