"""What a check of `corelane doctor` found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""
