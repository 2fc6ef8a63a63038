"""Which cell serves a request, as far as its address tells. Pure.

An id names its cell. What makes something new goes to its owner's cell. Lists are those of every cell where the caller
has something, and what shows or steers the service is asked of every cell.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from corelane.domain.ids import ALPHABET, RANDOM_CHARS, TIME_CHARS, cell_of, is_id

#: The part of an id after its kind and its cell.
REST = rf"[{ALPHABET}]{{{TIME_CHARS + RANDOM_CHARS}}}"

#: Ids that an address may hold.
IDS = re.compile(rf"(?:job|file|batch)_([{ALPHABET}]){REST}")

#: A delivery's id: its subject is a job or a batch.
DELIVERY = re.compile(rf"evt_[{ALPHABET}]{REST}_[a-z_]{{1,32}}")

#: Methods that change nothing.
READS = frozenset({"GET", "HEAD"})


class Kind(Enum):
    """How the cell of a request is found."""

    #: Any cell answers alike.
    ANY = auto()
    #: The one that is named.
    ONE = auto()
    #: The one of the caller.
    HOME = auto()
    #: The one that has the caller's job of a name, else the caller's.
    NAMED = auto()
    #: The one of the file that the body names.
    FILE = auto()
    #: Each of the caller's in turn, as the body's cursor says.
    STEPS = auto()
    #: Each where the caller has something.
    OWNED = auto()
    #: Each.
    EVERY = auto()
    #: Each, to change all of them.
    STEER = auto()
    #: Each where the caller's new work may go, to keep or forget what jobs there name.
    KEEP = auto()
    #: A page of the console: of the cell that the browser chose.
    CONSOLE = auto()


@dataclass(frozen=True, slots=True)
class Way:
    """How the cell of a request is found, and what it needs for that: a cell, a name, a kind of list."""

    kind: Kind
    cell: str = ""
    name: str = ""
    #: What is listed, or shown, of several cells; see ``api.cells.merging``.
    shows: str = ""


#: Fixed addresses that are not served by the caller's cell.
FIXED = {
    ("GET", "/v1/jobs"): Way(Kind.OWNED, shows="jobs"),
    ("POST", "/v1/jobs/bulk"): Way(Kind.STEPS),
    ("GET", "/v1/failed-items"): Way(Kind.OWNED, shows="failed-items"),
    ("GET", "/v1/failed-items/codes"): Way(Kind.OWNED, shows="failure-groups"),
    ("GET", "/v1/deliveries"): Way(Kind.OWNED, shows="deliveries"),
    ("GET", "/v1/files"): Way(Kind.OWNED, shows="files"),
    ("POST", "/v1/batches"): Way(Kind.FILE),
    ("GET", "/v1/batches"): Way(Kind.OWNED, shows="batches"),
    ("GET", "/v1/usage"): Way(Kind.OWNED, shows="usage"),
    ("GET", "/v1/audit"): Way(Kind.OWNED, shows="audit"),
    ("GET", "/v1/overview"): Way(Kind.EVERY, shows="overview"),
    ("GET", "/v1/scaling"): Way(Kind.EVERY, shows="scaling"),
    ("GET", "/v1/history"): Way(Kind.EVERY, shows="history"),
    ("GET", "/v1/cores"): Way(Kind.EVERY, shows="cores"),
    ("GET", "/v1/models"): Way(Kind.EVERY, shows="models"),
    ("GET", "/v1/pauses"): Way(Kind.EVERY, shows="pauses"),
    ("GET", "/v1/aliases"): Way(Kind.EVERY, shows="aliases"),
    ("GET", "/readyz"): Way(Kind.EVERY, shows="ready"),
    ("GET", "/metrics"): Way(Kind.EVERY, shows="metrics"),
}

#: Paths below which a request without an id of its own is one for the caller's cell.
AT_HOME = (
    *("/v1/jobs", "/v1/files", "/v1/batches", "/v1/deliveries", "/v1/answers", "/v1/hf/"),
    "/v1/webhook-secrets",  # the route itself changes them in every cell
)


def way_of(method: str, path: str, query: str = "") -> Way:
    """Return how the cell of a request is found."""
    method = "GET" if method in READS else method
    if (fixed := FIXED.get((method, path))) is not None:
        return fixed
    if path == "/console" or path.startswith("/console/"):
        found = IDS.search(path) or IDS.search(query)
        return Way(Kind.CONSOLE, cell=found[1] if found else "")
    if path.startswith(("/v1/cores/", "/v1/aliases/", "/v1/pauses/", "/v1/cache")) and method != "GET":
        return Way(Kind.STEER)
    if path == "/v1/contexts" or path.startswith("/v1/contexts/"):
        return Way(Kind.HOME if method == "GET" else Kind.KEEP)
    if path.startswith("/v1/models/"):
        return Way(Kind.EVERY, name=path.removeprefix("/v1/models/"), shows="model")
    if not path.startswith(AT_HOME):
        return Way(Kind.ANY)
    part = f"{path}///".split("/")[3]
    if path.startswith("/v1/jobs/") and part:
        return Way(Kind.ONE, cell=cell_of(part)) if is_id("job", part) else Way(Kind.NAMED, name=part)
    if is_id("file", part) or is_id("batch", part) or DELIVERY.fullmatch(part):
        return Way(Kind.ONE, cell=cell_of(part))
    return Way(Kind.HOME)
