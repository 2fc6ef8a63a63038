"""Read and write the objects that references name: open one at an offset, in the same version, or write it.

S3 is reached with the service's own credentials, which its library finds like every AWS tool. Other URLs are reached
only through checked addresses.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from corelane.domain.job_references import without_query
from corelane.errors import InputFailed, OutputFailed, SetupError, UrlRefused
from corelane.errors.extras import install_command
from corelane.plugins.files.references.fetch import INPUT_TIMEOUT_S, FetchFailed, get, put
from corelane.plugins.files.references.urls import S3Object, is_allowed, parse_s3
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.store.file_storage import reach

#: S3 is read in requests of this size, in bytes.
READ_BYTES = 1024 * 1024

#: Statuses that may be different at another attempt.
PASSING = frozenset((408, 425, 429))

#: Results are spooled in memory up to this size, in bytes, and then on disk, before they are sent by PUT.
SPOOL_BYTES = 8 * 1024 * 1024


class ReferenceFailed(Exception):
    """An attempt failed; another may succeed."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An object that is being read: its version, or an empty string, its bytes from an offset on, and its headers."""

    etag: str
    start: int
    chunks: Iterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)


def open_object(
    settings: Settings, url: str, owner: str, start: int = 0, etag: str = "", seconds: float = INPUT_TIMEOUT_S
) -> AbstractContextManager[Opened]:
    """Open an object for reading from an offset on, or from its beginning if the server cannot do that; http in time.

    Raise InputFailed if it cannot be read at all or no longer has that ``etag``, ReferenceFailed if another attempt may
    succeed.
    """
    if not is_allowed(url, settings.of(FilesFields).input_urls, owner):
        raise InputFailed(f"{without_query(url)} is not allowed by CORELANE_INPUT_URLS where it is read")
    where = parse_s3(url)
    return _open_http(settings, url, owner, start, etag, seconds) if where is None else _open_s3(where, start, etag)


@contextmanager
def _open_s3(where: S3Object, start: int, etag: str) -> Iterator[Opened]:
    with s3_errors(InputFailed, f"s3://{where.bucket}/{where.key}"):
        files = s3_files()
        with files.open(f"{where.bucket}/{where.key}", "rb", cache_type="none") as file:
            found = str(file.details.get("ETag") or "")
            require_same(etag, found)
            file.seek(start)
            yield Opened(found, start, iter(lambda: file.read(READ_BYTES), b""))


@contextmanager
def _open_http(settings: Settings, url: str, owner: str, start: int, etag: str, seconds: float) -> Iterator[Opened]:
    asked = {"accept-encoding": "identity", "user-agent": "corelane"}
    if start:
        asked["range"] = f"bytes={start}-"
    allowed = settings.of(FilesFields).input_urls
    with (
        http_errors(InputFailed),
        get(settings, url, asked, lambda target: is_allowed(target, allowed, owner), seconds=seconds) as response,
    ):
        check_status(response.status, InputFailed)
        # Identifies the version of an object, if the server gives one.
        found = response.headers.get("etag") or response.headers.get("last-modified", "")
        require_same(etag, found)
        yield Opened(found, start if response.status == 206 else 0, response.body, response.headers)


def require_same(before: str, now: str) -> None:
    """Raise InputFailed if an object has changed since its first part was read."""
    if before and before != now:
        raise InputFailed("the object changed while it was read: submit the job again")


def check_status(status: int, kind: type[InputFailed] | type[OutputFailed]) -> None:
    """Raise ``kind`` or ReferenceFailed for a status that is not a success."""
    if not 200 <= status < 300:
        sentence = f"the server answered {status}"
        raise ReferenceFailed(sentence) if status >= 500 or status in PASSING else kind(sentence)


def write_object(settings: Settings, url: str, owner: str, write: Callable[[BinaryIO], None], content_type: str) -> int:
    """Write an object, completely or not at all; return its size. Raise OutputFailed or ReferenceFailed."""
    if not is_allowed(url, settings.of(FilesFields).output_urls, owner):
        raise OutputFailed(f"{without_query(url)} is not allowed by CORELANE_OUTPUT_URLS of the keeper")
    where = parse_s3(url)
    return _put_http(settings, url, write, content_type) if where is None else _put_s3(where, write, content_type)


def _put_s3(where: S3Object, write: Callable[[BinaryIO], None], content_type: str) -> int:
    """Upload in parts while the object is written. S3 shows the object once the last part is complete."""
    with s3_errors(OutputFailed, f"s3://{where.bucket}/{where.key}"):
        file = s3_files().open(f"{where.bucket}/{where.key}", "wb", ContentType=content_type)
        try:
            write(file)
            size = int(file.tell())
            file.close()
        except BaseException:
            with suppress(Exception):
                file.discard()
            # Otherwise it would be uploaded when it is garbage-collected (fsspec 2026.9, AbstractBufferedFile.__del__).
            file.closed = True
            raise
    return size


def _put_http(settings: Settings, url: str, write: Callable[[BinaryIO], None], content_type: str) -> int:
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        write(spool)  # type: ignore[arg-type]  # it writes and tells, as any file
        size = spool.tell()
        spool.seek(0)
        headers = {"content-length": str(size), "content-type": content_type, "user-agent": "corelane"}
        with http_errors(OutputFailed):
            status = put(settings, url, headers, spool)  # type: ignore[arg-type]
    check_status(status, OutputFailed)
    return size


@contextmanager
def http_errors(kind: type[InputFailed] | type[OutputFailed]) -> Iterator[None]:
    """Translate the errors of ``fetch``."""
    try:
        yield
    except UrlRefused as error:
        raise kind(error.detail) from None
    except FetchFailed as error:
        raise ReferenceFailed(str(error)) from None


def s3_files() -> Any:
    """Return the file system of S3; raise SetupError if its library is missing."""
    try:
        return reach("s3://", os.getpid())[0]
    except ImportError:
        raise SetupError(f"s3 URLs need a package that is not installed: run `{install_command('remote')}`") from None


@contextmanager
def s3_errors(kind: type[InputFailed] | type[OutputFailed], name: str) -> Iterator[None]:
    """Translate the errors of s3fs and botocore."""
    try:
        yield
    except (InputFailed, OutputFailed, ReferenceFailed, SetupError):
        raise
    except FileNotFoundError as error:
        if kind is OutputFailed:
            raise ReferenceFailed(f"there is no such bucket: {error}") from None
        raise kind(f"there is no object {name}") from None
    except PermissionError as error:
        sentence = f"S3 refuses access to {name}: {error}"
        raise (kind(sentence) if kind is InputFailed else ReferenceFailed(sentence)) from None
    except Exception as error:
        if type(error).__name__ == "FileExpired":
            raise InputFailed("the object changed while it was read: submit the job again") from None
        if type(error).__module__.startswith(("corelane", "redis")):
            raise
        raise ReferenceFailed(f"{type(error).__name__}: {error}") from None
