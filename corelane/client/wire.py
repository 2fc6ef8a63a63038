"""What goes over the wire: bodies and lines as bytes, addresses, keys, and refusals as errors. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel

from corelane.domain.jobs import Item
from corelane.errors import InvalidInput, ServiceError

#: A job's lines are sent in pieces of this size, in bytes.
PIECE_BYTES = 64 * 1024

#: Our own code for HTTP failures that carry no problem document: a proxy's, or not Corelane at all.
FOREIGN = "http_error"

#: What a file's name in a form must not hold as it is (WHATWG, multipart/form-data).
IN_FORMS = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})

JobItem = Item | Mapping[str, Any]


class Lines:
    """A job as lines, gathered in pieces of some ``PIECE_BYTES``; the head is the first."""

    def __init__(self, head: object) -> None:
        self._piece = bytearray(dump_body(head) + b"\n")

    def add(self, item: JobItem) -> bytes | None:
        """One more line; a piece once there is enough for one."""
        self._piece += dump_body(item) + b"\n"
        return self.take() if len(self._piece) >= PIECE_BYTES else None

    def take(self) -> bytes:
        """What was gathered since the last piece."""
        piece = bytes(self._piece)
        self._piece.clear()
        return piece


def dump_lines(head: object, items: Iterable[JobItem]) -> Iterator[bytes]:
    """A job as lines, piece by piece, as its items come."""
    lines = Lines(head)
    for item in items:
        if (piece := lines.add(item)) is not None:
            yield piece
    if rest := lines.take():
        yield rest


def dump_form(path: Path, boundary: str) -> Iterator[bytes]:
    """A file for a batch as a form, piece by piece; raises InvalidInput if it cannot be read."""
    name = path.name.translate(IN_FORMS)
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/jsonl'
    yield f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'.encode()
    yield f"--{boundary}\r\n{head}\r\n\r\n".encode()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    yield f"\r\n--{boundary}--\r\n".encode()


def dump_body(value: object) -> bytes:
    """JSON of plain data and models; raises InvalidInput for text that is not Unicode."""
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError as error:
        raise InvalidInput(f"the job cannot be written as JSON: {error}") from None


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def checked_key(api_key: str) -> str:
    """The key; raises InvalidInput, which does not show it, if no header can carry it."""
    if not all("!" <= char <= "~" for char in api_key):
        raise InvalidInput("an API key is printable ASCII without spaces")
    return api_key


def host_of(url: str) -> str:
    """The host of an http or https address; raises ValueError if there is none, or no port can be read."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("it does not begin with http:// or https:// and a host")
    return parts.hostname


def local_url(host: str, port: int) -> str:
    """Where a service that listens on ``host`` is reached from its own machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  looked for, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def read_problem(status: int, body: bytes) -> ServiceError:
    """A refusal as an error: a problem document's own words, or that there are none."""
    with suppress(orjson.JSONDecodeError):
        problem = orjson.loads(body)
        if isinstance(problem, dict) and isinstance(problem.get("detail"), str):
            return ServiceError(problem["detail"], status=status, problem_code=str(problem.get("code", FOREIGN)))
    return ServiceError(f"HTTP {status} without a reason; is this Corelane?", status=status, problem_code=FOREIGN)
