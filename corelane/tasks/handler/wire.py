"""The wire format of handlers: an item is any JSON object, and so is a job's options.

What fields they have is for the handler to say. A version's own forms (``forms_of``) check them by its JSON schemas, at
the API, where no code of a handler runs. The worker checks them again, by the handler's classes.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import orjson
from pydantic import ConfigDict, Field, create_model, model_validator

from corelane.domain.job_requests import JobRequest
from corelane.domain.jobs import ERROR, WINDOWS, Item, ItemError, Result, TaskOptions

#: Most characters of a schema's sentence about a fault.
MOST_FAULT_CHARS = 300

#: Checks a value; raises ValueError.
Check = Callable[[Mapping[str, Any]], None]


class HandlerItem(Item):
    """Any JSON object; all of it but `id` goes to the handler."""

    model_config = ConfigDict(extra="allow")

    @property
    def given(self) -> dict[str, Any]:
        """Return what the handler gets."""
        fields = {name: getattr(self, name) for name in self.model_fields_set if name != "id"}
        return fields | (self.model_extra or {})


class HandlerOptions(TaskOptions):
    """The handler's own options."""

    model_config = ConfigDict(extra="allow")

    task: ClassVar[str] = "handler"

    def model_post_init(self, _: Any) -> None:
        """Let ``vars`` have the options too: options are stored, shown and digested by it."""
        vars(self).update(self.model_extra or {})


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

    class VersionItem(HandlerItem):
        __doc__ = HandlerItem.__doc__

        @model_validator(mode="before")
        @classmethod
        def _fits(cls, value: Any) -> Any:
            if isinstance(value, dict):
                check_item({name: each for name, each in value.items() if name != "id"})
            return value

    names = [name for name in facts["input_schema"].get("properties", {}) if _may_be_field(name)]
    fields: dict[str, Any] = {name: (Any, Field(None, description="A field of the handler's.")) for name in names}

    item: type[HandlerItem] = create_model("HandlerItem", __base__=VersionItem, **fields)

    class VersionOptions(HandlerOptions):
        __doc__ = HandlerOptions.__doc__

        form: ClassVar[type[Item] | None] = item

        @model_validator(mode="before")
        @classmethod
        def _fits(cls, value: Any) -> Any:
            if isinstance(value, dict):
                if facts["options_schema"] is None and value:
                    raise ValueError(f"{version} takes no options")
                check_options(value)
            return value

    return item, VersionOptions


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
    """Return whether a form may have a field of this name; all others are in what it has beyond its fields."""
    return name.isidentifier() and not name.startswith(("_", "model_")) and not hasattr(JobRequest, name)


def _check_of(schema: Mapping[str, Any] | None, takes: str) -> Check:
    """Return the check of values by a schema, compiled once; none for a schema that cannot be used here."""
    if schema is None:
        return _take_all
    try:
        from jsonschema_rs import validator_for

        validator = validator_for(dict(schema))
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
