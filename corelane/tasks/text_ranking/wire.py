"""The wire format of a query and the texts that are ranked by it."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, FailFast, Field

from corelane.domain.jobs import ERROR, UNLESS_NULL, WINDOWS, Item, ItemError, Result, TaskOptions, Text
from corelane.domain.wire import MOST_LISTED, at_most

#: The texts of one item. Of wrong ones the first is told alone.
RankedTexts = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_LISTED), FailFast(), at_most(MOST_LISTED)]


class Ranked(Item):
    """One query, and the texts to rank."""

    query: Text = Field(description="What is looked for.")
    texts: RankedTexts = Field(description="The texts to rank, of any length.")


class RankingOptions(TaskOptions):
    """The options by which texts are ranked."""

    task: ClassVar[str] = "text-ranking"
    top_n: int | None = Field(None, ge=1, strict=True, description="Texts returned, best first; all of them if null.")
    return_texts: bool = Field(False, strict=True, description="Whether each place has its text too.")
    function: Literal["sigmoid", "none"] | None = Field(
        None, description="How a logit becomes a score; as the model has it if null. No order changes."
    )


class RankedText(BaseModel):
    """One text's place in the ranking."""

    index: int = Field(ge=0, description="Position of the text in the item's `texts`.")
    score: float
    text: str | None = Field(None, **UNLESS_NULL, description="With the option `return_texts` only.")


class RankingResult(Result):
    """The outcome of one query."""

    mark: ClassVar[str] = "ranking"

    ranking: list[RankedText] = Field(default_factory=list, description="Best first.")
    windows: int = WINDOWS
    error: ItemError | None = ERROR
