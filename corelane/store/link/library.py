"""The Lua library: every atomic step on the data, as functions that Redis stores (FUNCTION LOAD) and runs (FCALL).

Its name contains a digest of its text, so processes of two versions run side by side, each with its own functions. If
it is missing, as after a failover to an empty server, the link loads it and repeats the call.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from corelane.domain import conditions, dispatch
from corelane.domain.jobs import Priority
from corelane.metrics.definitions import LATENCY_S
from corelane.metrics.recorder import ABOVE, SEPARATOR, bucket_name
from corelane.plugin import all_plugins
from corelane.store import keys

FOLDER = Path(__file__).parent.parent / "lua"

#: Files shared by all areas: whatever they define is visible in all files that follow.
GROUND = ("basics", "history", "counters", "lanes", "hooks")

#: The areas, in the order in which their hooks run. What a file defines at its top is private. What other files may
#: call is in the table that is named like the file. Lua allows 200 names at the top of a library; the shared files and
#: the areas take half of them.
AREAS = (
    *("deliveries", "index", "jobs", "admission"),
    *("pick", "claims", "commits", "fleet", "secrets", "upkeep", "gauges"),
)

#: Constants of Python rules that Lua needs. Each is explained where it is defined.
NUMBERS = {
    "SMALL_TOKENS": dispatch.SMALL_TOKENS,
    "BESIDE_TOKENS": dispatch.BESIDE_TOKENS,
    "SMALL_WEIGHT": dispatch.SMALL_WEIGHT,
    "LOW_TURN": dispatch.LOW_TURN,
    "MEMORY_SHARE": conditions.MEMORY_SHARE,
    "MOST_REF_ITEMS": dispatch.MOST_REF_ITEMS,
}

#: Prefix of the names of all versions of the library.
PREFIX = "corelane_"

Command = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """The name and text of one version."""

    name: str
    text: str

    @property
    def load(self) -> Command:
        """The command that loads the library; harmless if it is loaded already."""
        return ("FUNCTION", "LOAD", "REPLACE", self.text)


@cache
def read_library() -> Library:
    """Return the library of this version."""
    return make_library(read_code())


def read_code(extra: Sequence[Path] | None = None) -> str:
    """Return the library's code, put together from its files. The areas of plugins come last.

    ``extra`` replaces the files of installed plugins. Raise ValueError if two areas have the same name.
    """
    if extra is None:
        extra = [path for plugin in all_plugins() for path in plugin.lua()]
    files = [*(FOLDER / f"{name}.lua" for name in AREAS), *extra]
    if len(names := {path.stem for path in files}) < len(files):
        raise ValueError(f"two areas of the Lua library have one name: {sorted(path.stem for path in files)}")
    ground = "".join((FOLDER / f"{name}.lua").read_text() for name in GROUND)
    tables = "".join(f"local {name} = {{}}\n" for name in sorted(names))
    areas = "".join(f"do\n{path.read_text()}end\n" for path in files)
    return f"{constants()}local keys = {keys.as_lua()}\n{ground}{tables}{areas}"


def constants() -> str:
    """Return the constants of Python rules as Lua locals."""
    bounds = ",".join(f"{1000 * bound:g}" for bound in LATENCY_S)
    buckets = ",".join(f"'{SEPARATOR}{name}'" for name in (*map(bucket_name, LATENCY_S), ABOVE))
    names = ",".join(f"['{priority.rank}']='{priority.value}'" for priority in Priority)
    numbers = "".join(f"local {name} = {number}\n" for name, number in NUMBERS.items())
    return f"{numbers}local PRIORITIES, LATENCY_MS = {{{names}}}, {{{bounds}}}\nlocal LATENCY = {{{buckets}}}\n"


def make_library(code: str) -> Library:
    """Make a library of code. Its name contains a digest of the code."""
    name = PREFIX + hashlib.sha256(code.encode()).hexdigest()[:10]
    return Library(name, f"#!lua name={name}\nlocal PREFIX = '{name}_'\n{code}")
