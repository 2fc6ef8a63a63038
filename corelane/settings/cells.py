"""The settings that say which cells there are, and the rules for them.

A cell is one Redis with its own cores, keeper and webhook senders. The API alone knows several; every other process
belongs to one.
"""

import re
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode

from corelane.settings.rules import check_redis_url

#: A cell's name: one character of the alphabet of ids.
CELL_NAME = r"[0-9a-hjkmnp-tv-z]"

#: Where a cell begins in a list: its name, `=`, and the scheme of a URL. URLs of Sentinels have commas of their own.
CELL_BEGINS = re.compile(rf"(?:^|[,\s]+)({CELL_NAME})=(?=[a-z+]+://)")


class CellFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    cell: str = Field(
        "0", pattern=f"^{CELL_NAME}$", description="The cell of this process's Redis: one character, in every id made."
    )
    cells: SecretStr | None = Field(
        None,
        description="For the API: every cell and its Redis, `0=redis://…,1=redis://…`; redis_url alone if unset.",
    )
    draining_cells: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="For the API and `corelane keys`: cells that get no new owners, comma-separated names."
    )

    @field_validator("draining_cells", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("cells")
    @classmethod
    def _check_cells(cls, value: SecretStr | None) -> SecretStr | None:
        names = read_cells(value.get_secret_value()) if value is not None else {}
        for url in names.values():
            check_redis_url(url)
        return value

    def of_cells(self) -> dict[str, Self]:
        """Return the settings of each cell, in order: they differ in its name and its Redis."""
        if self.cells is None:
            return {self.cell: self}
        urls = read_cells(self.cells.get_secret_value())
        return {name: self.model_copy(update={"cell": name, "redis_url": url}) for name, url in urls.items()}


def read_cells(text: str) -> dict[str, str]:
    """Return the URL of each cell of a list, in order; raises ValueError for one that cannot be read."""
    first, *parts = CELL_BEGINS.split(text.strip())
    names, urls = parts[::2], [url.strip().rstrip(",").strip() for url in parts[1::2]]
    if first.strip() or not names or not all(urls):
        raise ValueError("not a list of cells")
    if len(set(names)) < len(names) or len(set(urls)) < len(urls):
        raise ValueError("a cell or a Redis stands in the list twice")
    return dict(zip(names, urls, strict=True))
