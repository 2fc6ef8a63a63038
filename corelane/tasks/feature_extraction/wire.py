"""The wire format of texts that become vectors, and of the vectors."""

import sys
from array import array
from base64 import b64decode
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from corelane.domain.jobs import ERROR, UNLESS_NULL, WINDOWS, ItemError, Result, TaskOptions
from corelane.tasks.text import CUT

#: How the vectors of tokens become one.
Pooling = Literal["mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean"]


#: What becomes of a text that is longer than the model reads at once.
Long = Literal["error", "mean", "cut"]


class EmbeddingOptions(TaskOptions):
    """The options by which texts become vectors."""

    task: ClassVar[str] = "feature-extraction"
    added: ClassVar[frozenset[str]] = frozenset({"output"})
    pooling: Pooling | None = Field(
        None, description="How the vectors of tokens become one; as the model has it if null."
    )
    normalize: bool | None = Field(
        None, strict=True, description="Whether vectors have the length 1; as the model has it if null."
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        strict=True,
        description="Only so many of the first numbers are given; the vector is made of length 1 after that if it is "
        "normalized.",
    )
    prompt_name: str | None = Field(
        None, min_length=1, max_length=100, description="One of the model's prompts, which goes before each text."
    )
    encoding: Literal["float", "base64"] = Field(
        "float", description="`base64` gives the numbers as 32-bit floats, little-endian, in half of the space."
    )
    output: Literal["text", "tokens", "pieces", "decoded"] = Field(
        "text",
        description="`tokens` gives the vectors of all tokens of a text, special ones too, as they are before pooling: "
        "the numbers of one after those of the other. `pieces` gives the tokens, and the model reads nothing. "
        "`decoded` takes a text of token ids, with spaces between, and gives what they stand for, also special ones.",
    )
    long: Long = Field(
        "error",
        description="What becomes of a text that is longer than the model reads at once: `error` fails the item, "
        "`mean` has all of it read in windows and gives their mean, by their tokens, `cut` reads its beginning.",
    )

    @model_validator(mode="after")
    def _tokens_as_they_are(self) -> Self:
        changes = (self.pooling, self.normalize, self.dimensions)
        if self.output != "text" and (self.long == "mean" or any(each is not None for each in changes)):
            raise ValueError(
                f"with the output `{self.output}` tokens are as the model has them: leave `pooling`, `normalize` and "
                "`dimensions` out, and `long` at `error` or `cut`"
            )
        return self


def numbers_of(vector: str) -> "array[float]":
    """Return a vector that was sent in base64 as its numbers."""
    numbers = array("f", b64decode(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class EmbeddingResult(Result):
    """The outcome of one text."""

    mark: ClassVar[str] = "embedding"

    embedding: list[float] | str | None = Field(None, description="The vector; text with the encoding `base64`.")
    tokens: int = Field(0, ge=0, description="Tokens of the text, with its prompt and special tokens.")
    pieces: list[dict[str, Any]] | None = Field(
        None,
        **UNLESS_NULL,
        description="The tokens: `id`, `text`, `special`, and unless it is special `start`, `stop`. Or the text of "
        "ids, without the special ones and with them: `text`, `special`.",
    )
    cut: int | None = CUT
    windows: int = WINDOWS
    error: ItemError | None = ERROR
