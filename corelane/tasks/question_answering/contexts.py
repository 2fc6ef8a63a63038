"""Passages that several questions of a job share."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from corelane.domain.jobs import Item, JobHead, Text, no_text
from corelane.domain.wire import MOST_LISTED, OBJECT_IN_PIECES, at_most
from corelane.tasks.question_answering.wire import Question


class SharesContexts(JobHead):
    """A job whose items may share passages."""

    contexts: (
        Annotated[
            dict[Annotated[str, Field(min_length=1, max_length=256)], Text],
            Field(max_length=MOST_LISTED),
            OBJECT_IN_PIECES,
            at_most(MOST_LISTED),
        ]
        | None
    ) = Field(
        None, description="Passages that several items share, by ids of your own; items name them by `context_id`."
    )

    @property
    def shared_texts(self) -> Mapping[str, str]:
        """Return the passages by their ids."""
        return self.contexts or {}

    def let_go(self) -> None:
        """Drop the items and passages; called once they are stored."""
        self.items = self.contexts = None

    def check_texts(self, items: Iterable[Item]) -> None:
        """Raise ValueError for an item whose ``context_id`` is not in ``contexts``."""
        for index, item in enumerate(items):
            name = item.context_id if isinstance(item, Question) else None
            if name is not None and name not in self.shared_texts:
                raise ValueError(f"item {index}: {no_text(name)}")
