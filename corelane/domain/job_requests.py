"""The requests that make jobs: a body of JSON, or the first line of a job that is sent as lines. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from corelane.domain.job_references import MAX_URL_CHARS
from corelane.domain.jobs import Item, JobHead, same_id
from corelane.domain.wire import MOST_ROWS
from corelane.errors import TooLarge


def is_in_place(body: Any) -> bool:
    """Return whether a job's body, if it has an item at all, has the fields of one item in place of `items`."""
    return isinstance(body, dict) and body.get("items") is None and body.get("input_url") is None


def require_own_ids(items: Sequence[Item]) -> None:
    """Raise ValueError for two items with the same id."""
    seen: dict[str | int, int] = {}
    for index, item in enumerate(items):
        if item.id is not None and (first := seen.setdefault(item.id, index)) != index:
            raise ValueError(f"item {index} {same_id(str(item.id), f'item {first}')}")


def count_rows(items: Sequence[Any], rows_by: str, shared: int = 1) -> int:
    """Count the rows of items, validated or not; stop at the first item that takes them above ``MOST_ROWS``.

    ``rows_by`` is the field with a row for each entry; an item without it has ``shared`` rows.
    """
    rows = 0
    for item in items:
        own = item.get(rows_by) if isinstance(item, dict) else getattr(item, rows_by, None)
        rows += len(own) if isinstance(own, list | tuple) else shared
        if rows > MOST_ROWS:
            break
    return rows


def require_few_rows(items: Sequence[Any], rows_by: str, shared: int = 1) -> None:
    """Raise TooLarge for items of too many rows; see ``count_rows``."""
    if count_rows(items, rows_by, shared) > MOST_ROWS:
        raise TooLarge(
            f"the items of the job have more than {MOST_ROWS:,} `{rows_by}` together: send several jobs, or send it "
            "as lines (application/x-ndjson)"
        )


class LinesHead(JobHead):
    """A job without its items: the first line of a job that is sent as lines; retries and batches make one too."""

    results_window: int | None = Field(
        None,
        ge=1000,
        strict=True,
        description="Pause feeding items while this many results wait for their reader to drop them.",
    )


class JobRequest(JobHead):
    """The body of ``POST /v1/jobs``: many ``items``, or one item's fields in place.

    Each task has a form of its own, with the fields of its items (``tasks.forms``).
    """

    #: The form of an item.
    item: ClassVar[type[Item]] = Item
    #: The field of an item that has an entry for each of the item's rows; empty if an item is one row.
    rows_by: ClassVar[str] = ""
    #: The fields of an item that may be given in place.
    in_place: ClassVar[tuple[str, ...]] = ()
    input_url: str | None = Field(
        None,
        max_length=MAX_URL_CHARS,
        description="In place of `items`: where they are read from, an `s3` or `https` URL of lines (NDJSON), or of a "
        "JSON document if its name ends in `.json`; packed if it ends in `.gz`. The service allows certain beginnings "
        "only.",
    )
    items: list[Item] | None = None

    @field_validator("items", mode="wrap")
    @classmethod
    def _as_they_came(cls, value: Any, validate: Callable[[Any], Any], info: ValidationInfo) -> Any:
        """Leave items unvalidated if invalid ones should fail alone: ``submitting.items`` then checks each of them.

        Their rows are counted before anything else is checked.
        """
        if cls.rows_by and isinstance(value, list):
            require_few_rows(value, cls.rows_by)
        fails_alone = info.data.get("invalid_items") == "fail" and isinstance(value, list) and value
        return value if fails_alone else validate(value)

    @property
    def unchecked(self) -> list[Any] | None:
        """Return the items as they were sent, if invalid ones should fail alone; else None."""
        return self.items if self.invalid_items == "fail" else None

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Turn the fields of one item in place into a list of one item, so that all items are read alike.

        With `items` or an `input_url`, a field in place that is null counts as not given.
        """
        if not isinstance(value, dict) or not (names := value.keys() & set(cls.in_place)):
            return value
        single = {name: value[name] for name in value if name in names}
        rest = {name: each for name, each in value.items() if name not in names}
        if is_in_place(value):
            return rest | {"items": [single]}
        return rest | {name: each for name, each in single.items() if each is not None}

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        is_single = any(getattr(self, name) is not None for name in self.in_place)
        if self.input_url is not None:
            if self.items or is_single:
                raise ValueError("an `input_url` takes no items beside it")
            return self
        if self.items is None:
            raise ValueError(f"give `items`, or {self._one_item()}, or an `input_url`")
        if is_single:
            raise ValueError(f"give either `items` or {self._one_item()}, not both")
        if self.unchecked is None:
            require_own_ids(self.items)
            self.check_texts(self.items)
        return self

    def _one_item(self) -> str:
        wanted = [f"`{name}`" for name, field in self.item.model_fields.items() if field.is_required()]
        return f"one item's {', '.join(wanted) or 'fields'} in place"

    def let_go(self) -> None:
        """Drop the items and texts, once they are stored."""
        self.items = None

    def check_texts(self, items: Iterable[Item]) -> None:
        """Raise ValueError for an item that names a shared text which does not exist."""
