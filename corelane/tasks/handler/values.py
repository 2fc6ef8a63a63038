"""What values of callers and handlers may hold, so that they can be stored and shown as JSON. Pure."""

import math
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import BytesSchema

#: Most levels of lists and objects in an item, in options and in an output. Writers and readers of JSON have limits.
MOST_LEVELS = 100

#: Most characters of a place in an error.
MOST_PLACE_CHARS = 100

#: The format of bytes in a schema of outputs.
BYTES = b'"base64url"'


def is_deep(raw: bytes) -> bool:
    """Return whether JSON may have too many levels, by its brackets."""
    return raw.count(b"[") + raw.count(b"{") > MOST_LEVELS


def fault_in(value: Any, place: str = "", level: int = 0) -> str | None:
    """Return the first place in a value that JSON cannot hold, with the reason; None if there is none."""
    at = f"{place[1:MOST_PLACE_CHARS]}: " if place else ""
    if level > MOST_LEVELS:
        return f"{at}it has more than {MOST_LEVELS} levels of lists and objects"
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict | list | tuple):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        faults = (fault_in(each, f"{place}.{name!s:.64}", level + 1) for name, each in parts)
        return next((fault for fault in faults if fault is not None), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at}{value} is no number in JSON"
    try:
        orjson.dumps(to_jsonable_python(value, bytes_mode="base64"))
    except Exception:
        return f"{at}{SAID.get(type(value), f'{type(value).__name__} has no form in JSON')}"
    return None


#: What is wrong with a value of a type that JSON has.
SAID = {int: "a whole number beyond 64 bits", str: "a text with half a surrogate pair"}


def json_text(given: dict[str, Any]) -> str:
    """Return an object of a caller's as JSON; raise ValueError if it has too many levels."""
    try:
        raw = orjson.dumps(given, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ValueError(fault_in(given) or str(error)) from None
    if is_deep(raw) and (fault := fault_in(given)):
        raise ValueError(fault)
    return raw.decode()


class _OutputSchema(GenerateJsonSchema):
    def bytes_schema(self, schema: BytesSchema) -> JsonSchemaValue:
        return super().bytes_schema(schema) | {"format": "base64url"}


def output_schema(form: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of outputs. Bytes become base64, unless the form says what becomes of them."""
    if "ser_json_bytes" in form.model_config:
        return form.model_json_schema(mode="serialization")
    return form.model_json_schema(mode="serialization", schema_generator=_OutputSchema)
