"""References: URLs of objects that a job's items are read from, or that its results are written to. Pure.

A caller's URL must begin with one that the operator allows. An S3 bucket is reached with the service's own credentials,
so only that check protects it. The query of a URL may be a key, such as the signature of a presigned URL. It is stored
with the job, and never shown or logged.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from corelane.domain.job_references import MAX_URL_CHARS, without_query

#: The form of an S3 reference. S3 takes any key without `?`, which s3fs would read as a version.
S3_URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([^?#\s]{1,1024})")
HTTP_URL = re.compile(r"(https?)://([^/?#@\\\s]+)(/[^?#\\\s]*)(\?[^#\s]*)?")

#: Characters that end a name for some servers, and the text that fsspec takes as the border between two URLs.
CONTROL, CHAINED = re.compile(r"[\x00-\x1f\x7f]"), "::"

#: In an allowed prefix, this stands for the caller's owner.
OWNER = "{owner}"

Format = Literal["ndjson", "json"]


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object in a bucket."""

    bucket: str
    key: str


def parse_s3(url: str) -> S3Object | None:
    """Return the object of an s3 URL; None for another URL."""
    found = S3_URL.fullmatch(url)
    return None if found is None else S3Object(found[1], found[2])


def is_reference(url: str) -> bool:
    """Return whether a URL names an object: no user, no fragment, no step upwards in its path, in any spelling."""
    try:
        urlsplit(url)
    except ValueError:
        return False
    if len(url) > MAX_URL_CHARS:
        return False
    s3, http = S3_URL.fullmatch(url), HTTP_URL.fullmatch(url)
    path = s3[2] if s3 else http[3] if http else ".."
    read = _unquoted(path)
    # The text after a semicolon is a parameter of its segment, which some servers cut off.
    segments = {segment.partition(";")[0] for segment in re.split(r"[/\\]", read)}
    has_hidden = CONTROL.search(read) is not None or CHAINED in read
    return not {".", ".."} & segments and not has_hidden and not path.endswith("/")


def _unquoted(path: str) -> str:
    """Return a path with all percent-encoding undone. It may have been applied several times, as by proxies."""
    while (read := unquote(path)) != path:
        path = read
    return path


def is_allowed(url: str, prefixes: Sequence[str], owner: str) -> bool:
    """Return whether an owner may name this URL: it begins with one of these prefixes."""
    return is_reference(url) and any(_begins(url, prefix.replace(OWNER, quote(owner, safe=""))) for prefix in prefixes)


def _begins(url: str, prefix: str) -> bool:
    scheme, _, rest = prefix.partition("://")
    if scheme != "s3":
        host, slash, path = rest.partition("/")
        of = urlsplit(url)
        is_host = host == "*" or host.lower() == of.netloc.lower()
        return scheme == of.scheme and is_host and of.path.startswith(slash + path)
    return url.startswith(prefix)


def is_packed(url: str) -> bool:
    """Return whether an input is compressed by gzip, judged by its name."""
    return without_query(url).endswith(".gz")


def format_of(url: str) -> Format:
    """Return the format of an input, judged by its name: one JSON document, or else lines."""
    return "json" if without_query(url).removesuffix(".gz").endswith(".json") else "ndjson"
