"""The fields of a form by the JSON schema of what it asks for, and the values that a form has for them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from corelane.errors import InvalidInput

#: How a field is asked for: a line, some lines of one text, one text a line, a number, one of few, several of few,
#: yes or no, or JSON.
Kind = Literal["line", "text", "texts", "number", "choice", "choices", "yes", "json"]

#: A text of at most so many characters is asked for in one line.
LINE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class FormField:
    """One field. ``name`` is its name in the form, ``key`` in the object; a field without a key is the whole object."""

    name: str
    key: str
    kind: Kind
    label: str
    about: str = ""
    default: str = ""
    example: str = ""
    is_required: bool = False
    choices: Sequence[str] = ()
    least: float | None = None
    most: float | None = None
    step: str = "any"


def fields_of(schema: Mapping[str, Any], example: Mapping[str, Any], prefix: str = "") -> list[FormField]:
    """Return the fields of an object; ``example`` is one. An object that may have any fields is asked for as JSON."""
    properties = {key: each for key, each in schema.get("properties", {}).items() if key != "id"}
    if not properties:
        is_open = schema.get("additionalProperties", True)
        return [FormField(prefix + "json", "", "json", "JSON", example=written(dict(example)))] if is_open else []
    wanted, known = schema.get("required", ()), schema.get("$defs", {})
    return [
        _field(prefix + key, key, each, written(example.get(key)), known, is_required=key in wanted)
        for key, each in properties.items()
    ]


def _field(
    name: str, key: str, schema: Mapping[str, Any], example: str, known: Mapping[str, Any], *, is_required: bool
) -> FormField:
    form, can_be_null = _plain(schema, known)
    kind = _kind(form, can_be_null=can_be_null)
    choices: Sequence[Any] = form.get("enum") or form.get("items", {}).get("enum") or ()
    if kind == "choice" and not choices:
        choices = ("true", "false")
    default = written(schema.get("default"))
    return FormField(
        name,
        key,
        kind,
        key.replace("_", " "),
        schema.get("description", ""),
        default,
        example,
        is_required,
        [str(each) for each in choices],
        form.get("minimum", form.get("exclusiveMinimum")),
        form.get("maximum", form.get("exclusiveMaximum")),
        "1" if form.get("type") == "integer" else "any",
    )


def _plain(schema: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of a value that is not null, and whether null is allowed."""
    if "$ref" in schema:
        return _plain(known.get(schema["$ref"].rpartition("/")[2], {}), known)
    forms = schema.get("anyOf") or schema.get("oneOf")
    if not forms:
        return schema, False
    left = [each for each in forms if each.get("type") != "null"]
    return (_plain(left[0], known)[0] if left else {}), len(left) < len(forms)


def _kind(form: Mapping[str, Any], *, can_be_null: bool) -> Kind:
    of_items = form.get("items", {})
    match form.get("type"):
        case _ if "enum" in form:
            return "choice"
        case "boolean":
            return "choice" if can_be_null else "yes"
        case "integer" | "number":
            return "number"
        case "string":
            return "line" if form.get("maxLength", LINE_CHARS + 1) <= LINE_CHARS else "text"
        case "array" if of_items.get("type") == "string":
            return "choices" if "enum" in of_items else "texts"
        case _:
            return "json"


def written(value: Any) -> str:
    """Return a value as a form has it; lists of texts have one a line."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def values_of(fields: Sequence[FormField], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the object that a form describes. Fields left empty are left out, unless they are required.

    A text that does not have the form of its field stays text, so that it is refused where the object is checked.
    Raise InvalidInput for JSON that is no object.
    """
    found: dict[str, Any] = {}
    for field in fields:
        text = form.get(field.name, "")
        if text.strip() or field.is_required:
            value = _value(field, text)
            if not field.key and not isinstance(value, dict):
                raise InvalidInput(f"give a JSON object, such as {field.example}")
            found |= {field.key: value} if field.key else value
    return found


def _value(field: FormField, text: str) -> Any:
    if field.kind in ("texts", "choices"):
        return [line for line in text.split("\n") if line.strip()]
    if field.kind in ("number", "json") or set(field.choices) == {"true", "false"}:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    # Where a box is not ticked, the form has only the value that is hidden before it.
    return text.endswith("true") if field.kind == "yes" else text
