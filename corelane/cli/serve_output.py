"""The output of `serve`: lines behind coloured names for people, or one JSON object a line; the page once it is ready.

The parts write text of their own to one pipe each. Where JSON is wanted, every line becomes an object with the part's
name: our own lines are JSON already, those of Redis, Flower and a crashing interpreter are not.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from corelane.cli.roles import core_range
from corelane.cli.webhook_secrets import kept_secret
from corelane.domain.addresses import local_url
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.settings.rules import without_password

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
    """The addresses of a ready service: a panel, and lines that are never cut, for people; facts for programs."""

    panel: str
    below: str
    facts: Mapping[str, object]


class PrettyOutput:
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
        if page.below:
            self._console.print(page.below, markup=False)


class JsonOutput:
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


ServeOutput = PrettyOutput | JsonOutput


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


def ready_page(settings: Settings, password: str, roles: frozenset[str]) -> ReadyPage:
    """Return the addresses and commands, with rich's markup for people; a password that was set is not repeated."""
    redis = without_password(settings.redis_url)
    facts: dict[str, object] = {"roles": sorted(roles), "redis": redis}
    here = sorted(roles - {"worker"})
    if "worker" in roles:
        facts |= {"cores": settings.cores, "model": settings.model}
        here = [f"{_count_cores(settings)} core{'s' if settings.cores != 1 else ''}", escape(settings.model)]
    lines, below = [f"[bold green]ready[/]: {', '.join(here)}", ""], list[str]()
    if "api" in roles:
        _add_api(settings, lines, below, facts)
    if "flower" in roles:
        _add_flower(settings, password, lines, facts)
    lines.append(f"Redis    {redis}")
    if roles & {"api", "deliveries"}:
        lines.append(f"Webhooks {_describe_webhooks(settings, below, facts)}")
    panel = "\n".join([*lines, "", "Stop     Ctrl-C"])
    return ReadyPage(panel, "\n".join(below), facts)


def _count_cores(settings: Settings) -> str:
    """Return how many cores this host runs; where they come and go by load, how few and how many."""
    least, most = core_range(settings)
    return f"{most}" if least == most else f"{least} to {most}"


def _add_api(settings: Settings, lines: list[str], below: list[str], facts: dict[str, object]) -> None:
    api = local_url(settings.host, settings.port)
    key = " --api-key clk_…" if settings.requires_keys else ""
    first = f'{own_command()} ask "Who wrote it?" --context "Ada wrote it." --url {api}{key}'
    lines += [f"API      {api}", f"Docs     {api}/docs"]
    facts |= {"api": api, "try": first}
    for name, path in (each for plugin in installed() for each in plugin.addresses(settings).items()):
        lines.append(f"{name.capitalize():8} {api}{path}")
        facts[name] = f"{api}{path}"
    below.append(f"Try      {first}")


def _add_flower(settings: Settings, password: str, lines: list[str], facts: dict[str, object]) -> None:
    flower = local_url(settings.flower_host, settings.flower_port)
    user = f"user [bold]{escape(settings.flower_user)}[/], password [bold]{escape(password)}[/]"
    lines.append(f"Flower   {flower}   {user}")
    facts |= {"flower": flower, "flower_user": settings.flower_user}
    if settings.flower_password is None:
        facts["flower_password"] = password


def _describe_webhooks(settings: Settings, below: list[str], facts: dict[str, object]) -> str:
    """Return by which secret webhooks are signed; add how to see one that was made here."""
    if settings.webhook_secret is None:
        return "signed with secrets of their owners alone, as CORELANE_WEBHOOK_SECRET is not set"
    if settings.webhook_secret != kept_secret(settings.data_dir):
        return "signed with CORELANE_WEBHOOK_SECRET"
    show = f"{own_command()} webhooks secret --data {shlex.quote(str(settings.data_dir))}"
    facts["webhook_secret"] = show
    below.append(f"Secret   {show}")
    return "signed with the secret made here"


def own_command() -> str:
    """Return this command as any shell here can call it: by its name only where that finds it."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("corelane")
    if found and (Path(found).resolve() == own.resolve() or Path(found).parent == Path(sys.executable).parent):
        return "corelane"
    script = Path(sys.executable).parent / "corelane"
    return str(script) if script.exists() else f"{sys.executable} -m corelane"
