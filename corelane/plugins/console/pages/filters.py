"""The filters of lists, in the form of addresses and HTML forms. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from corelane.domain.job_filter import JobFilter
from corelane.plugins.console.pages.forms import first

#: Fields that hold one value; `status` may hold several.
ONE = ("q", "name", "model", "failed_items", "code", "created_after", "created_before", "owner")


def read_filter(given: Mapping[str, Sequence[str]]) -> JobFilter:
    """Return the filter of an address or a form; empty fields are ignored. Raise ValidationError."""
    raw: dict[str, Any] = {name: text for name in ONE if (text := first(given, name).strip())}
    raw["status"] = tuple(text for text in given.get("status", ()) if text)
    return JobFilter.model_validate(raw)


def address(page: str, wanted: JobFilter, **more: str) -> str:
    """Return the address of a list with a filter: only the given conditions, so that it is short enough to share."""
    given = {name: "true" if value is True else value for name, value in wanted.given().items()}
    query = urlencode(given | more, doseq=True)
    return f"{page}?{query}" if query else page


def fill_form(given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the values for a form: what was typed, even if it is not a valid filter."""
    form: dict[str, Any] = {name: first(given, name).strip() for name in ONE}
    for name in ("created_after", "created_before"):
        form[name] = as_local(form[name])
    return form | {"status": list(given.get("status", ()))}


def as_local(text: str) -> str:
    """Return a time in the form of a browser's field for a time in UTC; empty for other text."""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return ""
