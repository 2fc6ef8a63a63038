"""The wire format of texts in which entities are found, and of the entities."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from corelane.domain.jobs import ERROR, UNLESS_NULL, WINDOWS, ItemError, Result, TaskOptions
from corelane.domain.wire import at_most
from corelane.tasks.text import Offsets, OffsetUnit

#: How tokens become entities, as in Transformers' pipeline.
Aggregation = Literal["none", "simple", "first", "average", "max"]


class EntityOptions(TaskOptions):
    """The options by which entities are found."""

    task: ClassVar[str] = "token-classification"
    aggregation: Aggregation = Field(
        "simple",
        description="How tokens become entities: `none` gives each token, `simple` joins neighbours with one label; "
        "`first`, `average` and `max` also decide by whole words.",
    )
    ignore_labels: Annotated[tuple[str, ...], Field(max_length=100), at_most(100)] = Field(
        ("O",), description="Labels that are left out."
    )
    offsets: Annotated[tuple[OffsetUnit, ...], Field(max_length=2), at_most(2)] = Field(
        (), description="Further units in which entities carry their offsets; code points are always given."
    )


class Entity(BaseModel):
    """A stretch of the text: ``text[start:end] == entity.text``, offsets in Unicode code points."""

    label: str
    start: int = Field(ge=0, description="First code point in the text.")
    end: int = Field(ge=0, description="One past the last code point.")
    text: str
    score: float = Field(ge=0, le=1)
    offsets: Offsets | None = Field(None, **UNLESS_NULL, description="With the option `offsets` only.")


class EntitiesResult(Result):
    """The outcome of one text."""

    mark: ClassVar[str] = "entities"

    entities: list[Entity] = Field(default_factory=list, description="In the order of the text.")
    windows: int = WINDOWS
    error: ItemError | None = ERROR
