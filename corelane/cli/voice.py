"""How `serve` speaks: for people behind coloured names, or one JSON object a line.

The parts write text of their own to one pipe each. Where JSON is wanted, every line becomes an object with the part's
name, whatever it was: ours are JSON already, those of Redis, Flower and a crashing interpreter are not.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import orjson
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

Level = Literal["debug", "info", "warning", "error"]

#: The name under which `serve` itself speaks.
SELF = "serve"

STYLES: Mapping[str, str] = {"debug": "dim", "info": "bold", "warning": "yellow", "error": "bold red"}

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")

#: Redis: process id and role, time, a mark for the severity, text.
REDIS_LINE = re.compile(r"\d+:[A-Za-z] \d+ \w+ \d+ [\d:.]+ ([.*#-]) (.*)")
REDIS_LEVELS: Mapping[str, Level] = {".": "debug", "-": "debug", "*": "info", "#": "warning"}

#: Tornado (Flower): severity, date, time and place, text.
TORNADO_LINE = re.compile(r"\[([DIWEC]) \d+ [\d:]+ [^\]]*\] (.*)")
TORNADO_LEVELS: Mapping[str, Level] = {"D": "debug", "I": "info", "W": "warning", "E": "error", "C": "error"}


class Voice(Protocol):
    """Where `serve` and its parts are heard."""

    def say(self, text: str, level: Level = "info") -> None:
        """A sentence of `serve` itself."""

    def show(self, part: str, line: str) -> None:
        """A line that a part wrote."""

    def announce(self, page: "Page") -> None:
        """That everything is ready."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where everything is: a panel, and a line that is never cut, for people; facts for programs."""

    panel: str
    below: str
    facts: Mapping[str, object]


class PrettyVoice:
    """For people."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours: dict[str, str] = {}

    def say(self, text: str, level: Level = "info") -> None:
        """A sentence, in the colour of its severity."""
        style = STYLES[level]
        self._console.print(Text(f"{'corelane':10}", style=style).append(" │ ", style="dim").append(text, style=style))

    def show(self, part: str, line: str) -> None:
        """The line behind the part's name."""
        colour = self._colours.setdefault(part, COLOURS[len(self._colours) % len(COLOURS)])
        name = Text(f"{part:10}", style=colour)
        self._console.print(name.append(" │ ", style="dim").append_text(Text.from_ansi(line)))

    def announce(self, page: Page) -> None:
        """The panel, and the line below it."""
        self._console.print(Panel.fit(page.panel, title="Corelane"))
        self._console.print(page.below, markup=False)


class JsonVoice:
    """For programs; on standard output."""

    def say(self, text: str, level: Level = "info") -> None:
        """A sentence as an event."""
        self._write(entry(text, level))

    def show(self, part: str, line: str) -> None:
        """The part's object with its name, or one made of its text."""
        self._write(as_object(part, line))

    def announce(self, page: Page) -> None:
        """The event ``ready`` with the facts."""
        self._write({**entry("ready"), **page.facts})

    def _write(self, line: Mapping[str, object]) -> None:
        sys.stdout.write(f"{as_json(line)}\n")
        sys.stdout.flush()


def as_object(part: str, line: str) -> dict[str, Any]:
    """A part's line as an object with its name."""
    if line.startswith("{"):
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            pass
        else:
            return {**found, "part": part}
    text = Text.from_ansi(line).plain
    level: Level = "info"
    for pattern, levels in ((REDIS_LINE, REDIS_LEVELS), (TORNADO_LINE, TORNADO_LEVELS)):
        if match := pattern.fullmatch(text):
            level, text = levels[match[1]], match[2]
    return entry(text, level, part)


def as_json(line: Mapping[str, object]) -> str:
    """The object as the logs of a single part write it."""
    return json.dumps(line, default=str)


def entry(text: str, level: Level = "info", part: str = SELF) -> dict[str, Any]:
    """A line as an object, in the fields of our logs."""
    timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"event": text, "level": level, "part": part, "timestamp": timestamp}
