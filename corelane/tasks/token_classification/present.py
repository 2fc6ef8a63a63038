"""What pages show of entities: each marked in the text, in a colour of its label."""

from collections.abc import Mapping, Sequence
from typing import Any

from corelane.tasks.presenting import Piece, Presenter, cut
from corelane.tasks.text import TextItem
from corelane.tasks.token_classification.wire import Entity

#: Colours that a page has; further labels share them.
HUES = 6

#: Most entities in one line, and in a table.
MOST_IN_LINE, MOST_IN_TABLE = 5, 200


def mark_entities(text: str, entities: Sequence[Entity]) -> list[Piece]:
    """Return a text with its entities marked; those of one label have one colour."""
    hues = {label: number % HUES for number, label in enumerate(sorted({each.label for each in entities}))}
    return cut(
        text,
        [
            (each.start, Piece(each.text, f"entity hue-{hues[each.label]}", f"{each.score:.3f}", each.label))
            for each in entities
        ],
    )


class EntityPresenter(Presenter):
    """Shows entities where they stand."""

    about = "One text. The model finds the names and other entities in it, and what each of them is."
    empty = "no entities"

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the first entities."""
        told = [f"{each.text} ({each.label})" for each in result.entities[:MOST_IN_LINE]]
        further = len(result.entities) - len(told)
        return ", ".join(told) + (f" and {further:,} more" if further else ""), None

    def shown(self, item: TextItem | None, result: Any) -> Mapping[str, Any]:
        """Return the text with its entities marked, and the first entities."""
        entities = result.entities if result else []
        return {
            "pieces": mark_entities(item.text, entities) if item else [],
            "entities": entities[:MOST_IN_TABLE],
            "further": max(0, len(entities) - MOST_IN_TABLE),
        }
