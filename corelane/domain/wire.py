"""Shared parts of request models: they bound how much of a value is checked before it is refused. Pure.

Pydantic lists every fault of a value, and a body of 5 MB may have two million. So entries and fields are counted before
they are validated. Long lists are validated in pieces, up to the first piece with a fault.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticKnownError

#: Entries validated by one call: 0.3 ms if they are valid, 25 ms if all are wrong.
PIECE = 100

#: Most entries of a list in a request.
MOST_LISTED = 10_000

#: Most rows of a job of JSON. An item has a row for each text to rank or label to choose from; others are one row.
MOST_ROWS = 100_000

#: Most unknown fields of one object that an error names.
MOST_UNKNOWN = 20

#: A time; UTC if it has no zone.
Time = Annotated[datetime, AfterValidator(lambda time: time if time.tzinfo is not None else time.replace(tzinfo=UTC))]


def epoch_ms(time: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Entry(BaseModel):
    """A request part: unknown fields are refused, so that a typing mistake is not silently ignored.

    A request has many entries. So callers that validate entries apply ``with_few_unknown``: done here, it would cost
    1 µs for each.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Wire(Entry):
    """A request part that applies ``with_few_unknown`` itself, and gives ``hints`` for misplaced fields."""

    #: Hints for fields that callers put here but that belong elsewhere or have another name.
    hints: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @model_validator(mode="before")
    @classmethod
    def _shortened(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.keys().isdisjoint(cls.hints):
            name = next(name for name in value if name in cls.hints)
            raise ValueError(f"there is no field `{name}` here: {cls.hints[name]}")
        return with_few_unknown(cls, value)


class Open(BaseModel):
    """A part of a reply that has fields of a task. A client keeps these, though it ignores other unknown fields."""

    model_config = ConfigDict(extra="allow")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="wrap")
    @classmethod
    def _whole(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(value)
        if isinstance(value, dict):
            found.__pydantic_extra__ = {name: each for name, each in value.items() if name not in cls.model_fields}
        return found


def with_few_unknown(model: type[BaseModel], value: Any) -> Any:
    """Return a value with only the first unknown fields: pydantic would report each of them."""
    if not isinstance(value, dict) or len(value) <= MOST_UNKNOWN or model.model_config.get("extra") == "allow":
        return value
    known = {field.alias or name for name, field in model.model_fields.items()} | model.model_fields.keys()
    unknown = set(islice((name for name in value if name not in known), MOST_UNKNOWN))
    return {name: each for name, each in value.items() if name in known or name in unknown}


def at_most(entries: int) -> BeforeValidator:
    """Return a validator that refuses a list or object with more than ``entries``, before any entry is checked."""

    def count(value: Any) -> Any:
        if isinstance(value, list | tuple | dict) and len(value) > entries:
            kind = "Dictionary" if isinstance(value, dict) else "List"
            raise PydanticKnownError(
                "too_long", {"field_type": kind, "max_length": entries, "actual_length": len(value)}
            )
        return value

    return BeforeValidator(count)


def in_pieces(model: type[BaseModel]) -> WrapValidator:
    """Return a validator of a long list of models: it goes piece by piece, up to the first one with a fault."""

    def validate_list(value: Any, validate: Callable[[Any], Any]) -> Any:
        if not isinstance(value, list):
            return validate(value)
        done: list[Any] = []
        for begin in range(0, max(1, len(value)), PIECE):
            piece = [with_few_unknown(model, each) for each in value[begin : begin + PIECE]]
            try:
                done += validate(piece)
            except ValidationError:
                # Validate the piece once more behind the valid ones, so that the fault has its place in the whole list.
                return validate(done + piece)
        return done

    return WrapValidator(validate_list)


def _validate_object(value: Any, validate: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return validate(value)
    entries, done = iter(value.items()), dict[Any, Any]()
    while piece := dict(islice(entries, PIECE)):
        done |= validate(piece)
    return done


#: Validates a long object in pieces, up to the first one with a fault.
OBJECT_IN_PIECES = WrapValidator(_validate_object)
