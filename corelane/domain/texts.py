"""Stored texts: passages that an owner keeps, named by their content; their wire format. Pure.

On the wire a stored text is a context: its id is ``ctx_`` and the SHA-256 of its text in UTF-8, in hexadecimal. So the
same text is stored once even if it is sent often, and a caller can compute its id.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from corelane.domain.wire import Wire
from corelane.errors import UnknownText

#: What one and several are called on the wire, in commands and on pages; the prefix of an id.
WIRE_NAME, WIRE_NAMES, PREFIX = "context", "contexts", "ctx_"

#: The field of an item that names one.
TEXT_ID_FIELD = "context_id"

#: The form of an id, anywhere in a line.
ID = re.compile(rb"ctx_[0-9a-f]{64}")

#: Most digests that one error message names.
NAMED = 5


def named_in(line: bytes) -> set[str]:
    """Return all strings in a line that look like ids. Some may not be ids, but no id is missing."""
    return {found.decode() for found in ID.findall(line)}


def digest_of(text: str) -> str:
    """Return the digest of a text; it is the same for a text sent with a job and for a stored one."""
    return hashlib.sha256(text.encode()).hexdigest()


def text_id(text: str) -> str:
    """Return the id of a text as a stored one."""
    return PREFIX + digest_of(text)


def digest_in(name: str) -> str:
    """Return the digest in an id."""
    return name.removeprefix(PREFIX)


def is_text_id(text: str) -> bool:
    """Return whether a text has the form of a stored text's id."""
    return ID.fullmatch(text.encode(errors="replace")) is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """A reference to a stored text in an item's row, in place of its text; ``orjson`` writes it as an object."""

    digest: str

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> "Stored":
        """Parse what ``orjson`` wrote; raise ValueError for anything else."""
        digest = found.get("digest")
        if type(digest) is not str or len(found) != 1:
            raise ValueError("an object in a row is not a stored text")
        return cls(digest)


@dataclass(frozen=True, slots=True)
class Known:
    """What a submission needs to know of a stored text: its estimated tokens, and its beginning."""

    tokens: float
    head: str


class TextBody(Wire):
    """A text that is to be stored, as JSON; a body of plain text is the ``text`` alone."""

    text: str = Field(min_length=1, description="The passage, of any length that a job may have.")
    name: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="A name of your own, shown in lists."
    )
    expires_in_s: int | None = Field(
        None,
        ge=60,
        strict=True,
        description="Seconds to keep it after it was last used; at most, and by default, as long as the service "
        "keeps stored texts.",
    )


class TextInfo(BaseModel):
    """What is known of a stored text."""

    object: Literal["context"] = "context"
    id: str = Field(description="`ctx_` and the SHA-256 of the text in UTF-8.")
    name: str | None = None
    bytes: int = Field(description="Size of the text in UTF-8.")
    chars: int = Field(description="Unicode code points of the text, in which offsets count.")
    tokens: int = Field(description="Estimated tokens of the text.")
    created_at: str
    used_at: str = Field(description="When a job named it last, or when it was stored.")
    expires_at: str = Field(description="When it is over if no further job names it.")
    jobs: int = Field(0, description="Jobs that have named it.")


class TextList(BaseModel):
    """One page of stored texts, newest first."""

    object: Literal["list"] = "list"
    data: list[TextInfo]
    has_more: bool = Field(description="Whether older ones follow.")
    next: str | None = Field(description="Cursor of the next page.")
    bytes: int = Field(description="Bytes of all your stored texts, with those kept only for open jobs.")


def no_text(name: str) -> str:
    """Return the error that an item names a text that does not exist."""
    return f"there is no {name!r} in the job's `contexts`, and stored ones are named `ctx_` and 64 digits"


def unknown(names: Iterable[str]) -> UnknownText:
    """Return one error that names all texts that are missing."""
    listed = sorted(names)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return UnknownText(
        f"there is no stored context {', '.join(listed[:NAMED])}{more}: it was never stored with this key, was "
        "deleted, or its time is over. Store it (PUT /v1/contexts/ID) and send this again; nothing was kept"
    )


def full(most: int, *, is_bytes: bool) -> str:
    """Return the error that an owner has the most stored texts, or the most bytes of them."""
    unit, variable = ("bytes of ", "CORELANE_MAX_CONTEXTS_BYTES") if is_bytes else ("", "CORELANE_MAX_CONTEXTS")
    return (
        f"an owner may have {most:,} {unit}stored contexts ({variable}): delete some that you need no longer, or wait "
        "until some are over; GET /v1/contexts lists them. What open jobs name goes when they are answered"
    )
