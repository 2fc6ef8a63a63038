"""Items as rows, and rows as items. Pure."""

from collections.abc import Mapping

from corelane.domain.dispatch import Row
from corelane.domain.jobs import Item
from corelane.domain.texts import PREFIX, Stored, digest_in
from corelane.tasks.task import Task


def item_row(task: Task, item: Item, numbers: Mapping[str, int]) -> Row:
    """Return an item as a row; ``numbers`` are the numbers of the job's own texts, by id; others are stored."""
    beside, text, text_id = task.parts(item)
    if text_id is None:
        return item.id, beside, text or ""
    number = numbers.get(text_id)
    return item.id, beside, Stored(digest_in(text_id)) if number is None else number


def item_of(task: Task, row: Row) -> Item:
    """Return an item as it was submitted. A shared text is named by its number, a stored one by its id."""
    item_id, beside, text = row
    if isinstance(text, str):
        fields = task.fields(beside, text, None)
    else:
        fields = task.fields(beside, None, str(text) if isinstance(text, int) else PREFIX + text.digest)
    return task.item.model_validate({"id": item_id, **fields})
