"""The fields of a form, from the JSON schema of the object to fill in; and the object, from a form's values. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from corelane.errors import InvalidInput

#: How a form asks for a value: a line, a text, texts one a line, a number, one of few, several of few, a box, or JSON.
Kind = Literal["line", "text", "texts", "number", "choice", "choices", "yes", "json"]

#: The kinds of simple values, by their types.
KINDS: Mapping[str, Kind] = {"boolean": "yes", "integer": "number", "number": "number"}

#: Ask in one line for a text of at most this many characters.
LINE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class FormField:
    """One field. ``name`` is its name in the form, ``key`` in the object; a field without a key is the whole object."""

    name: str
    key: str
    kind: Kind
    schema: Mapping[str, Any]
    choices: Sequence[str] = ()
    about: str = ""
    default: str = ""
    example: str = ""
    is_required: bool = False


def fields_of(schema: Mapping[str, Any], example: Mapping[str, Any], prefix: str = "") -> Iterator[FormField]:
    """Yield the fields of an object; ``example`` is one. An object that may have any fields is asked for as JSON."""
    properties = {key: each for key, each in schema.get("properties", {}).items() if key != "id"}
    if not properties and schema.get("additionalProperties", True):
        yield FormField(prefix + "json", "", "json", {}, example=written(dict(example)))
    for key, each in properties.items():
        form, can_be_null = _plain(each, schema.get("$defs", {}))
        kind = _kind(form)
        choices = [str(one) for one in form.get("enum") or form.get("items", {}).get("enum") or ()]
        if kind == "yes" and can_be_null:
            kind, choices = "choice", ["true", "false"]
        words = each.get("description", ""), written(each.get("default")), written(example.get(key))
        yield FormField(prefix + key, key, kind, form, choices, *words, key in schema.get("required", ()))


def _plain(schema: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of a value that is not null, and whether null is allowed."""
    if "$ref" in schema:
        return _plain(known.get(schema["$ref"].rpartition("/")[2], {}), known)
    forms = schema.get("anyOf", [schema])
    left = [each for each in forms if each.get("type") != "null"] or [{}]
    return (left[0] if "anyOf" not in schema else _plain(left[0], known)[0]), len(left) < len(forms)


def _kind(form: Mapping[str, Any]) -> Kind:
    of_items = form.get("items", {})
    if "enum" in form:
        return "choice"
    if form.get("type") == "string":
        return "line" if form.get("maxLength", LINE_CHARS + 1) <= LINE_CHARS else "text"
    if of_items.get("type") == "string":
        return "choices" if "enum" in of_items else "texts"
    return KINDS.get(form.get("type", ""), "json")


def written(value: Any) -> str:
    """Return a value as a form shows it; a list of texts has one text a line."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def values_of(fields: Iterable[FormField], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the object that a form describes. Fields left empty are left out, unless they are required.

    A value that does not have its field's form stays text, so that it is refused where the object is checked. Raise
    InvalidInput if a field for the whole object has no JSON object.
    """
    found: dict[str, Any] = {}
    for field in fields:
        text = form.get(field.name, "")
        if not text.strip() and not field.is_required:
            continue
        value = _value(field, text)
        if not field.key and not isinstance(value, dict):
            raise InvalidInput(f"give a JSON object, such as {field.example}")
        found |= {field.key: value} if field.key else value
    return found


def _value(field: FormField, text: str) -> Any:
    if field.kind in ("texts", "choices"):
        return [line for line in text.split("\n") if line.strip()]
    if field.kind in ("line", "text") or (field.kind == "choice" and field.schema.get("type", "string") == "string"):
        return text
    try:
        # Where a box is ticked, a form has both its value and the one that is hidden before it.
        return orjson.loads(text.rpartition("\n")[2] if field.kind == "yes" else text)
    except orjson.JSONDecodeError:
        return text
