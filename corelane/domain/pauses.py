"""Pauses: a version or an owner gets no new work until an operator resumes it; new jobs wait. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import orjson
from pydantic import BaseModel, Field

from corelane.domain.ids import iso_time


class PauseKind(StrEnum):
    """What can be paused."""

    MODEL = "model"
    OWNER = "owner"


class Pause(BaseModel):
    """One thing that is paused."""

    object: Literal["pause"] = "pause"
    kind: PauseKind
    name: str = Field(description="The version, or the owner.")
    by: str = Field(description="Who paused it: the name of the API key, else the owner who acted.")
    since: str

    @property
    def subject(self) -> str:
        """Return what is paused."""
        return f"{self.kind} {self.name}"

    @property
    def told(self) -> str:
        """Say who paused it and since when."""
        return f"is paused by {self.by} since {self.since[:10]} {self.since[11:16]} UTC"

    @property
    def words(self) -> str:
        """Say who paused it, since when, and how to resume it."""
        return f"{self.told}; `corelane jobs resume {self.subject}` has it go on"

    @property
    def text(self) -> str:
        """Say in a sentence what is paused, by whom, since when, and how to resume it."""
        return f"{self.subject} {self.words}"


class PauseList(BaseModel):
    """The paused versions and owners."""

    object: Literal["list"] = "list"
    data: list[Pause]


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that is paused at one moment, the longest pause first."""

    all: Sequence[Pause] = ()

    @classmethod
    def decode(cls, told: Mapping[str, str]) -> "Pauses":
        """Parse what the store has: who paused what and when, by ``KIND:NAME``."""
        split = ((*what.partition(":"), text) for what, text in told.items())
        found = [decode_pause(kind, name, text) for kind, _, name, text in split]
        return cls(sorted(found, key=lambda pause: (pause.since, pause.kind, pause.name)))

    def names(self, kind: PauseKind) -> set[str]:
        """Return the names that are paused, of one kind."""
        return {pause.name for pause in self.all if pause.kind is kind}

    def of(self, kind: PauseKind, name: str) -> Pause | None:
        """Return the pause of a version or an owner."""
        return next((pause for pause in self.all if (pause.kind, pause.name) == (kind, name)), None)

    def against(self, version: str, owner: str) -> Pause | None:
        """Return the pause that holds up an owner's work for a version."""
        return self.of(PauseKind.MODEL, version) or self.of(PauseKind.OWNER, owner)

    def shown(self, *, with_owners: bool) -> list[Pause]:
        """Return the pauses; those of owners only if the caller may see the owners."""
        return [pause for pause in self.all if with_owners or pause.kind is not PauseKind.OWNER]


def decode_pause(kind: str, name: str, text: str) -> Pause:
    """Parse one stored pause."""
    told = orjson.loads(text)
    return Pause(kind=PauseKind(kind), name=name, by=told["by"], since=iso_time(int(told["at_ms"])))
