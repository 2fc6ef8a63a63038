"""Requests as bytes (bodies, lines, forms), checks of addresses and keys, refusals as errors, and files saved whole."""

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel

from corelane.domain.jobs import Item
from corelane.errors import InvalidInput, ServiceError

#: Size of the pieces in which lines and files are sent, in bytes.
PIECE_BYTES = 64 * 1024

#: Most items and bytes in a job: a tenth and a half of the service's default limits.
JOB_ITEMS, JOB_BYTES = 1000, 4 * 1024 * 1024

#: Our own code for HTTP failures without a problem document: the reply is from a proxy, or not from Corelane at all.
FOREIGN = "http_error"

#: Escapes for characters that a file's name in a form must not hold (WHATWG, multipart/form-data).
IN_FORMS = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})

JobItem = Item | Mapping[str, Any]


def dump_lines(head: object, items: Iterable[JobItem]) -> Iterator[bytes]:
    """Yield a job as lines, in pieces of about ``PIECE_BYTES``, while items are read; the head is the first line."""
    piece = bytearray(dump_body(head) + b"\n")
    for item in items:
        piece += dump_body(item) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


async def dump_lines_async(head: object, items: AsyncIterable[JobItem]) -> AsyncIterator[bytes]:
    """Yield the same as ``dump_lines`` for items of an asynchronous iterator."""
    piece = bytearray(dump_body(head) + b"\n")
    async for item in items:
        piece += dump_body(item) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def cut_jobs(
    items: Iterable[JobItem], max_items: int = JOB_ITEMS, max_bytes: int = JOB_BYTES
) -> Iterator[list[JobItem]]:
    """Yield items in order, cut into jobs within both limits; an item over ``max_bytes`` is a job by itself."""
    job: list[JobItem] = []
    job_bytes = 0
    for item in items:
        item_bytes = len(dump_body(item)) + 1
        if job and (len(job) == max_items or job_bytes + item_bytes > max_bytes):
            yield job
            job, job_bytes = [], 0
        job.append(item)
        job_bytes += item_bytes
    if job:
        yield job


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. It gets its name only when it is complete; after an error nothing is left."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("wb") as file:
            yield file
        aside.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)


def dump_form(path: Path, purpose: str, boundary: str) -> Iterator[bytes]:
    """Yield a file and its purpose as a form, piece by piece; raise InvalidInput if it cannot be read."""
    name = path.name.translate(IN_FORMS)
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/octet-stream'
    yield f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'.encode()
    yield f"--{boundary}\r\n{head}\r\n\r\n".encode()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    yield f"\r\n--{boundary}--\r\n".encode()


def dump_body(value: object) -> bytes:
    """Return the JSON of plain data and models; raise InvalidInput for text that is not Unicode."""
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError as error:
        reason = "a text in it is not UTF-8, send it as UTF-8" if "surrogates" in str(error) else error
        raise InvalidInput(f"the job cannot be written as JSON: {reason}") from None


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def checked_key(api_key: str) -> str:
    """Return the key; raise InvalidInput if no header can carry it. The error does not show the key."""
    if not all("!" <= char <= "~" for char in api_key):
        raise InvalidInput("an API key is printable ASCII without spaces")
    return api_key


def host_of(url: str) -> str:
    """Return the host of an http or https address; raise ValueError if there is none or the port is invalid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("it does not begin with http:// or https:// and a host")
    return parts.hostname


def read_problem(status: int, body: bytes) -> ServiceError:
    """Return a refusal as an error, with the text of the problem document if there is one."""
    with suppress(orjson.JSONDecodeError):
        problem = orjson.loads(body)
        if isinstance(problem, dict) and isinstance(problem.get("detail"), str):
            return ServiceError(problem["detail"], status=status, problem_code=str(problem.get("code", FOREIGN)))
    return ServiceError(f"HTTP {status} without a reason; is this Corelane?", status=status, problem_code=FOREIGN)
