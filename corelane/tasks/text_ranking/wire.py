"""The wire format of a query and the texts that are ranked by it."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, FailFast, Field

from corelane.domain.jobs import ERROR, UNLESS_NULL, WINDOWS, Item, ItemError, Result, TaskOptions, Text
from corelane.domain.wire import MOST_LISTED, at_most


def not_all_blank(texts: Sequence[str]) -> Sequence[str]:
    """Return the texts; raise ValueError if there is nothing to rank."""
    if not any(map(str.strip, texts)):
        raise ValueError("at least one must hold more than white space")
    return texts


#: The texts of one item. If several are wrong, only the first is reported.
RankedTexts = Annotated[
    tuple[str, ...],
    Field(min_length=1, max_length=MOST_LISTED),
    FailFast(),
    at_most(MOST_LISTED),
    AfterValidator(not_all_blank),
]


class Ranked(Item):
    """One query, and the texts to rank."""

    query: Text = Field(description="What is looked for.")
    texts: RankedTexts = Field(description="The texts to rank, of any length; one that is blank is judged like others.")


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
