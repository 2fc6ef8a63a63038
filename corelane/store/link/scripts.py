"""The Lua scripts, read from beside this file; each carries the shared constants and functions in front."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corelane.domain.dispatch import SMALL_TOKENS

FOLDER = Path(__file__).parent.parent / "lua"

NAMES = (
    "admit",
    "drain",
    "submit",
    "feed",
    "fail",
    "claim",
    "commit",
    "correct",
    "partial",
    "return",
    "cancel",
    "drop",
    "delete",
    "beat",
    "announce",
    "place",
    "alias",
    "unalias",
    "release",
    "lease",
    "turn",
    "leave",
    "ring",
    "wake",
    "tend",
    "forget",
    "prune",
    "own",
    "ended",
    "keep_file",
    "begin_batch",
    "step_batch",
    "cancel_batch",
    "take_due",
    "hold",
    "fix",
    "overdue",
    "went_round",
    "report",
    "redeliver",
)

#: Shared by every script, in this order: the end of a job announces its events.
SHARED = ("hooks", "common")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and the digest Redis knows it by."""

    name: str
    text: str
    sha: str


@cache
def load_scripts() -> dict[str, Script]:
    """Every script by name."""
    shared = "".join((FOLDER / f"{name}.lua").read_text() for name in SHARED)
    common = f"local SMALL_TOKENS = {SMALL_TOKENS}\n{shared}"
    texts = {name: common + (FOLDER / f"{name}.lua").read_text() for name in NAMES}
    return {
        name: Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        for name, text in texts.items()
    }
