"""Files that items name, by URL or as an uploaded file: checked at submission, and fetched by the core that runs them.

A URL is read under the rules of `input_url`, in bounded time; an uploaded file is its owner's alone.
"""

import asyncio
import mimetypes
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from corelane.domain.ids import is_id
from corelane.domain.job_references import without_query
from corelane.errors import InputFailed, InvalidInput, NotFound, TooLarge, Unavailable, UrlRefused
from corelane.log import get_logger
from corelane.plugins.files.references.checks import require_allowed
from corelane.plugins.files.references.objects import ReferenceFailed, open_object
from corelane.plugins.files.references.urls import is_allowed
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.files import FileStore
from corelane.settings import Settings
from corelane.store.file_storage import open_storage
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink

log = get_logger(__name__)

#: Longest time until a file is fetched, as its batch waits for it, and pauses after attempts that failed, in seconds.
FETCH_S, PAUSES_S = 20.0, (1.0, 3.0, 0.0)

#: Types that say nothing of a file, and that of a page.
UNSAID, PAGE = ("", "application/octet-stream", "binary/octet-stream"), "text/html"

#: How files of a type begin. A page that says "not found" or "sign in" begins otherwise.
BEGINNINGS = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
    "audio/x-wav": b"RIFF",
    "application/pdf": b"%PDF",
    "application/zip": b"PK",
}


async def check_files(settings: Settings, link: CommonLink, names: Mapping[str, str], owner: str) -> None:
    """Raise UrlRefused or InvalidInput, with its place, for a file that the owner may not name, or that is not there.

    The address of each host is checked once.
    """
    ids = [name for name in names if is_id("file", name)]
    found = await asyncio.gather(*(FileStore(link).get(each, owner) for each in ids))
    if None in found:
        missing = ids[found.index(None)]
        raise InvalidInput(f"{names[missing]}{no_file(missing)}")
    urls, allowed = [name for name in names if not is_id("file", name)], settings.of(FilesFields).input_urls
    refused = [url for url in urls if not is_allowed(url, allowed, owner)]
    for url in refused or {urlsplit(each).netloc: each for each in urls}.values():
        try:
            await require_allowed(settings, "input_url", url, owner)
        except UrlRefused as error:
            raise UrlRefused(f"{names[url]}{error.detail}") from None


def no_file(name: str) -> str:
    """Return the sentence that an owner has no such file."""
    return f"you have no file {name}: upload it by POST /v1/files, and send the item again"


def fetch(settings: Settings, name: str, owner: str, own_most: int | None) -> tuple[bytes, str]:
    """Return a file's bytes and type (``corelane.engine.task.Fetch``); raise TooLarge or InputFailed."""
    said, until = without_query(name)[:200], time.monotonic() + FETCH_S
    read = (read_url, read_upload)[is_id("file", name)]
    for pause_s in PAUSES_S:
        try:
            return read(settings, name, owner, own_most, until)
        except (TooLarge, InputFailed) as error:
            raise type(error)(error.detail if said in error.detail else f"{said}: {error.detail}") from None
        except (ReferenceFailed, Unavailable) as error:
            reason = str(error)
        if time.monotonic() + pause_s > until:
            reason = f"it was not read within {FETCH_S:g} s ({reason})"
            break
        time.sleep(pause_s)
    log.info("file_failed", file=said, reason=reason)
    raise InputFailed(f"{said}: {reason}; see that it can be read, and retry the job")


def read_url(settings: Settings, url: str, owner: str, own_most: int | None, until: float) -> tuple[bytes, str]:
    """Read a file from its URL, as ``fetch`` does, once."""
    with open_object(settings, url, owner, seconds=until - time.monotonic()) as opened:
        if (packed := opened.headers.get("content-encoding", "identity")) != "identity":
            raise InputFailed(f"the server packs it ({packed}): have it sent as it is")
        content = bounded(settings, opened.chunks, own_most, until)
        said = opened.headers.get("content-type", "").partition(";")[0].strip().lower()
    return content, type_of(urlsplit(url).path, said, content)


def read_upload(settings: Settings, file: str, owner: str, own_most: int | None, until: float) -> tuple[bytes, str]:
    """Read an owner's uploaded file, as ``fetch`` does, once."""
    link = Link(settings.redis_url)
    try:
        found = link.read(lambda read: FileStore(read).get(file, owner))
    finally:
        link.close()
    if found is None:
        raise InputFailed(no_file(file))
    try:
        chunks = open_storage(settings.files_url, settings.files_root).read(file)
    except NotFound:
        shared = "have the operator set CORELANE_FILES_URL, or share CORELANE_FILES_DIR with the API"
        raise InputFailed(f"its content is not on this core's host: {shared}") from None
    content = bounded(settings, chunks, own_most, until)
    return content, type_of(found.filename, "", content)


def bounded(settings: Settings, chunks: Iterator[bytes], own_most: int | None, until: float) -> bytes:
    """Return all chunks as one; raise TooLarge, or ReferenceFailed if they take too long."""
    most, content = min(settings.max_item_bytes, own_most or settings.max_item_bytes), bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > most:
            bound = "the model's own bound" if own_most == most else "CORELANE_MAX_ITEM_BYTES"
            raise TooLarge(f"it has more than {most:,} bytes ({bound}): name a smaller one")
        if time.monotonic() > until:
            raise ReferenceFailed("too slow")
    return bytes(content)


def type_of(name: str, said: str, content: bytes) -> str:
    """Return the type of a file, as its server says, or else its name; raise InputFailed if its bytes are of another.

    A server may send a picture in another form than its name has, or give all files one type.
    """
    of_name = mimetypes.guess_type(name)[0] or ""
    told = [kind for kind in (said, of_name) if kind in BEGINNINGS]
    fits = next((kind for kind in told if content.startswith(BEGINNINGS[kind])), "")
    if not fits and (told or (said == PAGE and of_name not in ("", PAGE))):
        wanted = of_name or said
        raise InputFailed(
            f"it is said to be {wanted}, and its bytes are not: name the file itself, not a page about it"
        )
    return fits or (of_name if said in UNSAID else said)
