"""The template of a model whose rows differ from BERT's; a part of the manifest."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FrozenRecord(BaseModel):
    """A frozen part of a manifest or a calibration."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Template(FrozenRecord):
    """The special tokens around a question and a stretch of context, and the token type of each part."""

    before: tuple[int, ...] = Field((), description="Tokens before the question.")
    between: tuple[int, ...] = Field((), description="Tokens between question and context.")
    after: tuple[int, ...] = Field((), description="Tokens after the context.")
    before_types: tuple[int, ...] = ()
    question_type: int = 0
    between_types: tuple[int, ...] = ()
    context_type: int = 0
    after_types: tuple[int, ...] = ()
    null_last: bool = Field(False, description="Whether the last token stands for no answer (XLNet), not the first.")

    @model_validator(mode="after")
    def _types_fit(self) -> Self:
        parts = ((self.before, self.before_types), (self.between, self.between_types), (self.after, self.after_types))
        if any(len(tokens) != len(types) for tokens, types in parts):
            raise ValueError("each special token needs a type")
        return self

    @property
    def specials(self) -> int:
        """Return how many special tokens a row has."""
        return len(self.before) + len(self.between) + len(self.after)

    def part_types(self) -> tuple[tuple[int, ...] | int, ...]:
        """Return the token types of the five parts of a row, in order."""
        return self.before_types, self.question_type, self.between_types, self.context_type, self.after_types
