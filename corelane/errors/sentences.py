"""Says what is wrong with a value in Corelane's own sentences, because pydantic's name Python's types. Pure."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Found = Mapping[str, Any]

#: Sentences by pydantic's names of errors; braces are filled from the error's facts.
SENTENCES = {
    "missing": "this is required",
    "extra_forbidden": "there is no such field",
    "string_type": "a text is wanted",
    "string_too_short": "at least {min_length:,} {min_length_characters} wanted",
    "string_too_long": "at most {max_length:,} {max_length_characters} allowed",
    "string_pattern_mismatch": "it does not match the pattern {pattern}",
    "string_unicode": "it is not valid Unicode",
    "bool_type": "true or false is wanted",
    "bool_parsing": "true or false is wanted",
    "int_type": "a whole number is wanted",
    "int_parsing": "a whole number is wanted",
    "int_from_float": "a whole number is wanted",
    "int_parsing_size": "the number is too large",
    "float_type": "a number is wanted",
    "float_parsing": "a number is wanted",
    "finite_number": "a finite number is wanted",
    "greater_than": "it must be greater than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be at most {le}",
    "list_type": "a list is wanted",
    "tuple_type": "a list is wanted",
    "dict_type": "a JSON object is wanted",
    "model_type": "a JSON object is wanted",
    "model_attributes_type": "a JSON object is wanted",
    "literal_error": "it must be {expected}",
    "enum": "it must be {expected}",
    "json_invalid": "the body is not JSON in UTF-8: {error}",
    "value_error": "{error}",
}

#: A time may be text or a number, and can be wrong in many ways.
A_TIME = "a time is wanted: RFC 3339 as 2026-07-01T12:00:00Z, or seconds since 1970"

#: Kinds of errors which only say that a value does not have one of its possible forms.
OTHER_FORM = ("string_type", "model_type", "model_attributes_type", "list_type", "tuple_type", "dict_type")


def sentence(found: Found, form: Any = None) -> str:
    """Return what an error of pydantic or the JSON parser means for the caller.

    ``form`` is the type of the value. With ``form``, the sentence about an unknown field names the known fields.
    """
    kind, facts = str(found["type"]), dict(found.get("ctx") or {})
    if kind == "extra_forbidden" and form is not None:
        return unknown_name("field", str(found["loc"][-1]), _fields_at(form, found["loc"][:-1]))
    if kind.startswith(("datetime", "timezone")):
        return A_TIME
    if kind in ("too_short", "too_long"):
        return _how_many(kind, facts)
    for name in ("min_length", "max_length"):
        if name in facts:
            facts[f"{name}_characters"] = "character is" if facts[name] == 1 else "characters are"
    if kind not in SENTENCES:
        return str(found["msg"])
    try:
        return SENTENCES[kind].format(**facts)
    except KeyError:
        return str(found["msg"]).removeprefix("Value error, ")


def place_of(found: Found) -> str:
    """Return the place of an error, as items.0.text; names of Python's types are left out."""
    return ".".join(str(part)[:64] for part in found["loc"] if not _is_form(part))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the part of a sentence that suggests the known names nearest to an unknown one; empty if none is near."""
    nearest = difflib.get_close_matches(name, known, n=2)
    return f", did you mean {' or '.join(f'`{each}`' for each in nearest)}?" if nearest else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about an unknown field or parameter: the nearest name, and all that there are."""
    names = list(dict.fromkeys(known))
    listed = ", ".join(f"`{each}`" for each in names) or "none"
    return f"there is no such {kind}{did_you_mean(name, names)} (there are {listed})"


def first_fault(error: ValidationError, form: Any = None, *, own_words: bool = True) -> str:
    """Return the first fault of a value, and its place; ``form`` is its type, as for ``sentence``.

    Without ``own_words``, leave out what a validator itself says: it may not be meant for callers.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    at, is_own = place_of(first), first["type"] not in SENTENCES or first["type"] == "value_error"
    said = "its validator refuses it" if is_own and not own_words else sentence(first, form)
    return f"{at}: {said}" if at else said


def relevant(found: Sequence[Found]) -> list[Found]:
    """Leave out errors that only deny a form of a value, if another form has errors of its own; else keep the first."""
    forms = {form for each in found if (form := _form_of(each)) is not None}
    other = [each for each in found if each["type"] in OTHER_FORM and _is_form(each["loc"][-1])]
    useless = other if len(forms) > len(other) else other[1:]
    return [each for each in found if not any(each is one for one in useless)]


def _fields_at(form: Any, place: Sequence[Any]) -> list[str]:
    """Return the fields of the part of a form at a place."""
    held = list(_models_in(form))
    for part in place:
        inner = [field.annotation for model in held if (field := model.model_fields.get(part)) is not None]
        held = [model for each in inner for model in _models_in(each)] or held
    return [field.alias or name for model in held for name, field in model.model_fields.items()]


def _models_in(form: Any) -> Iterator[type[BaseModel]]:
    if isinstance(form, type) and issubclass(form, BaseModel):
        yield form
        return
    for each in get_args(form):
        yield from _models_in(each)


def _how_many(kind: str, facts: Mapping[str, Any]) -> str:
    wanted = facts["min_length" if kind == "too_short" else "max_length"]
    entries = "entry" if wanted == 1 else "entries"
    if kind == "too_short":
        return f"it has {facts['actual_length']:,} entries, and at least {wanted:,} {entries} must be there"
    has = facts.get("actual_length")
    return (
        f"it has {has:,} entries, at most {wanted:,} {entries} may be there" if has else f"at most {wanted:,} {entries}"
    )


def _is_form(part: object) -> bool:
    """Return whether a part of a place is a type's name, which pydantic adds for values of several forms."""
    return isinstance(part, str) and (part.startswith(("list[", "dict[", "function-")) or part in FORMS)


def _form_of(found: Found) -> tuple[Any, ...] | None:
    location = found["loc"]
    return next((tuple(location[: at + 1]) for at, part in enumerate(location) if _is_form(part)), None)


#: Types that are one of several forms of a value.
FORMS = frozenset({"HfInput", "str"})
