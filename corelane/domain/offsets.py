"""Stretches of a text in other units than code points; part of the wire format."""

from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.jobs import is_none

#: A unit of offsets in addition to code points: UTF-16 code units, as JavaScript and Java count, or bytes of UTF-8.
OffsetUnit = Literal["utf16", "bytes"]


class Offsets(BaseModel):
    """The same stretch in other units, each as [start, end]; only those that were asked for are there."""

    utf16: tuple[int, int] | None = Field(
        None, exclude_if=is_none, description="UTF-16 code units: `text.slice(start, end)` in JavaScript."
    )
    bytes: tuple[int, int] | None = Field(None, exclude_if=is_none, description="Bytes of the text in UTF-8.")
