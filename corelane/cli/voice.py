"""How `serve` speaks: for people behind coloured names, or one JSON object a line.

The parts write text of their own to one pipe each. Where JSON is wanted, every line becomes an object with the part's
name: our own lines are JSON already, those of Redis, Flower and a crashing interpreter are not.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

Level = Literal["debug", "info", "warning", "error"]

#: The name of `serve` itself as a part.
SELF = "serve"

STYLES: Mapping[str, str] = {"debug": "dim", "info": "bold", "warning": "yellow", "error": "bold red"}

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")

#: Redis: process id and role, time, a mark for the severity, text.
REDIS_LINE = re.compile(r"\d+:[A-Za-z] \d+ \w+ \d+ [\d:.]+ ([.*#-]) (.*)")
REDIS_LEVELS: Mapping[str, Level] = {".": "debug", "-": "debug", "*": "info", "#": "warning"}

#: Tornado (Flower): severity, date, time and place, text.
TORNADO_LINE = re.compile(r"\[([DIWEC]) \d+ [\d:]+ [^\]]*\] (.*)")
TORNADO_LEVELS: Mapping[str, Level] = {"D": "debug", "I": "info", "W": "warning", "E": "error", "C": "error"}


@dataclass(frozen=True, slots=True)
class ReadyPage:
    """Where everything is: a panel, and lines that are never cut, for people; facts for programs."""

    panel: str
    below: str
    facts: Mapping[str, object]


class PrettyVoice:
    """For people."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours: dict[str, str] = {}

    def say(self, text: str, level: Level = "info") -> None:
        """Print a sentence of `serve` itself, in the colour of its severity."""
        style = STYLES[level]
        self._console.print(Text(f"{'corelane':10}", style=style).append(" │ ", style="dim").append(text, style=style))

    def show(self, part: str, line: str) -> None:
        """Print a line of a part, behind the part's name."""
        colour = self._colours.setdefault(part, COLOURS[len(self._colours) % len(COLOURS)])
        name = Text(f"{part:10}", style=colour)
        self._console.print(name.append(" │ ", style="dim").append_text(Text.from_ansi(line)))

    def announce(self, page: ReadyPage) -> None:
        """Print the panel, and the lines below it."""
        self._console.print(Panel.fit(page.panel, title="Corelane"))
        self._console.print(page.below, markup=False)


class JsonVoice:
    """For programs; on standard output."""

    def say(self, text: str, level: Level = "info") -> None:
        """Write a sentence of `serve` itself as an event."""
        self._write(entry(text, level))

    def show(self, part: str, line: str) -> None:
        """Write a line of a part as an object with the part's name."""
        self._write(as_object(part, line))

    def announce(self, page: ReadyPage) -> None:
        """Write the event ``ready`` with the facts."""
        self._write({**entry("ready"), **page.facts})

    def _write(self, line: Mapping[str, object]) -> None:
        sys.stdout.write(f"{as_json(line)}\n")
        sys.stdout.flush()


Voice = PrettyVoice | JsonVoice


def as_object(part: str, line: str) -> dict[str, Any]:
    """Return a part's line as an object with its name."""
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
    """Return the object as the logs of a single part write it."""
    return json.dumps(line, default=str)


def entry(text: str, level: Level = "info", part: str = SELF) -> dict[str, Any]:
    """Return a line as an object, with the fields of our logs."""
    timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"event": text, "level": level, "part": part, "timestamp": timestamp}
