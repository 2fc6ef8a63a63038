"""The wire format of handlers: an item is any JSON object, and so is a job's options.

What fields they have is for the handler to say. A version's own forms (``forms_of``) check them by its JSON schemas, at
the API, where no code of a handler runs. The worker checks them again, by the handler's classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import orjson
from pydantic import ConfigDict, Field, PrivateAttr, model_validator
from pydantic.fields import FieldInfo

from corelane.domain.job_requests import JobRequest
from corelane.domain.jobs import ERROR, WINDOWS, Item, ItemError, Result, TaskOptions
from corelane.tasks.handler.files import FILE_FORMAT, names_in
from corelane.tasks.handler.values import json_text

#: Most characters of a schema's sentence about a fault.
MOST_FAULT_CHARS = 300

#: Checks a value; raises ValueError.
Check = Callable[[Mapping[str, Any]], None]


class HandlerItem(Item):
    """Any JSON object; all of it but `id` goes to the handler.

    Its fields are pydantic's extra ones, in a dict of their own, so any name may be among them.
    """

    model_config = ConfigDict(extra="allow")

    #: The fields that a request with one item may have in place.
    names: ClassVar[Sequence[str]] = ()
    #: The most bytes of an item's JSON, by the handler's own bound.
    most_bytes: ClassVar[float] = math.inf
    _text: str = PrivateAttr("")

    @classmethod
    def fields_in_place(cls) -> Mapping[str, Any]:
        """Return the fields of an item that a request may have in place."""
        named = {
            name: FieldInfo(annotation=Any, default=None, description="A field of the handler's.") for name in cls.names
        }
        return {**cls.model_fields, **named}

    @property
    def text(self) -> str:
        """Return what the handler gets, as JSON."""
        return self._text

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        self._text = json_text(self.model_extra or {})
        return self


class HandlerOptions(TaskOptions):
    """The handler's own options: pydantic's extra fields, in a dict of their own."""

    model_config = ConfigDict(extra="allow")

    task: ClassVar[str] = "handler"

    @model_validator(mode="after")
    def _is_flat(self) -> Self:
        json_text(self.by_name())
        return self

    def by_name(self) -> dict[str, Any]:
        """Return the options by name."""
        return dict(self.model_extra or {})

    def stored(self) -> dict[str, Any]:
        """Return the options under one name, as they may have any."""
        return {"given": self.by_name()}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Read options in stored form; raise ValueError."""
        return cls.model_validate(stored.get("given", {}))


class HandlerResult(Result):
    """The outcome of one item."""

    mark: ClassVar[str] = "output"

    output: Any = Field(None, description="What the handler made of it, by the schema `output` of its model.")
    windows: int = WINDOWS
    error: ItemError | None = ERROR


def forms_of(version: str, facts: Mapping[str, Any]) -> tuple[type[HandlerItem], type[HandlerOptions]]:
    """Return the forms of an item and of the options of one version, by the schemas in its facts."""
    takes = f"{version} takes {outline(facts['input_schema'])}"
    if (example := facts.get("example")) is not None:
        takes += f", such as {orjson.dumps(example).decode()}"
    check_item, check_options = (
        _check_of(facts["input_schema"], takes),
        _check_of(facts["options_schema"], "these are its options"),
    )

    schema = facts["input_schema"]
    names_files = FILE_FORMAT.encode() in orjson.dumps(schema)

    class VersionItem(HandlerItem):
        __doc__ = HandlerItem.__doc__

        names = tuple(name for name in schema.get("properties", {}) if _may_be_field(name))
        most_bytes = facts.get("max_item_bytes") or math.inf

        @property
        def files(self) -> Sequence[str]:
            return tuple(names_in(self.model_extra, schema, schema.get("$defs", {}))) if names_files else ()

        @model_validator(mode="before")
        @classmethod
        def _fits(cls, value: Any) -> Any:
            if isinstance(value, dict):
                check_item({name: each for name, each in value.items() if name != "id"})
            return value

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(facts["input_schema"])

    class VersionOptions(HandlerOptions):
        __doc__ = HandlerOptions.__doc__

        form: ClassVar[type[Item] | None] = VersionItem

        @model_validator(mode="before")
        @classmethod
        def _fits(cls, value: Any) -> Any:
            if isinstance(value, dict):
                if facts["options_schema"] is None and value:
                    raise ValueError(f"{version} takes no options")
                check_options(value)
            return value

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(facts["options_schema"] or {"additionalProperties": False})

    return VersionItem, VersionOptions


def outline(schema: Mapping[str, Any]) -> str:
    """Return the fields of an object and their types, as ``{"text": string, "top"?: integer}``."""
    required = schema.get("required", ())
    fields = [
        f'"{name}"{"" if name in required else "?"}: {_type_of(each)}'
        for name, each in schema.get("properties", {}).items()
    ]
    return f"{{{', '.join(fields)}}}"


def _type_of(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type_of(each) for each in schema["anyOf"])
    found = schema.get("type", "any")
    return f"list of {_type_of(schema.get('items', {}))}" if found == "array" else str(found)


def _may_be_field(name: str) -> bool:
    """Return whether a request may have a field of this name in place; others stand in `items` alone."""
    return name.isidentifier() and not name.startswith(("_", "model_")) and not hasattr(JobRequest, name)


def _check_of(schema: Mapping[str, Any] | None, takes: str) -> Check:
    """Return the check of values by a schema, compiled once; none for a schema that cannot be used here."""
    if schema is None:
        return _take_all
    try:
        from jsonschema_rs import validator_for

        # Pydantic drops the fields that a class does not have, unless the class says what becomes of them.
        validator = validator_for({"additionalProperties": "properties" not in schema, **schema})
    except (ImportError, ValueError):
        return _take_all

    def check(value: Mapping[str, Any]) -> None:
        fault = next(iter(validator.iter_errors(value)), None)
        if fault is not None:
            place = ".".join(str(part) for part in fault.instance_path)
            said = f"{place}: {fault.message}" if place else fault.message
            raise ValueError(f"{said[:MOST_FAULT_CHARS]}; {takes}")

    return check


def _take_all(_: Mapping[str, Any]) -> None:
    """Leave the check to the worker."""
