"""Token classification as a task."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from corelane.tasks.text import TextItem, TextTask
from corelane.tasks.token_classification.dialects import HfEntities
from corelane.tasks.token_classification.present import EntityPresenter
from corelane.tasks.token_classification.wire import EntitiesResult, EntityOptions


class TokenClassification(TextTask):
    """Finds the entities in a text."""

    name = EntityOptions.task
    item = TextItem
    options = EntityOptions
    result = EntitiesResult
    nothing: Mapping[str, Any] = MappingProxyType({"entities": []})
    example: Mapping[str, Any] = MappingProxyType({"text": "Ada Lovelace was born in London."})
    dialects = (HfEntities(),)
    engine = "corelane.tasks.token_classification.engine:EntityEngine"
    present = EntityPresenter()
    #: A token counts in the window where it is farthest from the edges, so neighbouring windows share many tokens.
    overlap = 64

    def line(self, result: Mapping[str, Any]) -> str:
        """Return each entity with its label, offsets and score."""
        shown = (
            f"{each['text']} [{each['label']} {each['start']}-{each['end']} {each['score']:.3f}]"
            for each in result["entities"]
        )
        return ", ".join(shown) or "no entities"
