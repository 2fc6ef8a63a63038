"""The output of `serve`: lines after coloured names for people, or one JSON object a line; and a page when it is ready.

Each part writes text to its own pipe. For JSON output every line becomes an object with the part's name. Corelane's own
lines are JSON already; those of Redis, Flower and a crashing interpreter are not.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from corelane.cli.plugin import CommandPlugin
from corelane.cli.webhook_secrets import kept_secret
from corelane.domain.addresses import local_url
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.cores import core_range
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.settings.rules import without_password
from corelane.tasks.registry import task_named

Level = Literal["debug", "info", "warning", "error"]

STYLES: Mapping[str, str] = {"debug": "dim", "info": "bold", "warning": "yellow", "error": "bold red"}

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")

#: Lines of Redis (process id and role, time, a mark for the severity, text), and of Tornado in Flower (severity, date,
#: time and place, text).
FOREIGN_LINE = re.compile(r"(?:\d+:[A-Za-z] \d+ \w+ \d+ [\d:.]+ ([.*#-])|\[([DIWEC]) \d+ [\d:]+ [^\]]*\]) (.*)")
LEVELS: Mapping[str, Level] = {
    ".": "debug",
    "-": "debug",
    "*": "info",
    "#": "warning",
    "D": "debug",
    "I": "info",
    "W": "warning",
    "E": "error",
    "C": "error",
}


class ReadyPage(NamedTuple):
    """The addresses of a ready service: for people a panel, and lines that are never cut; for programs facts."""

    panel: str
    below: str
    facts: Mapping[str, object]


class PrettyOutput:
    """Output for people."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours: dict[str, str] = {}

    def say(self, text: str, level: Level = "info") -> None:
        """Print a sentence of `serve` itself, in the colour of its severity."""
        self._print("corelane", STYLES[level], Text(text, style=STYLES[level]))

    def show(self, part: str, line: str) -> None:
        """Print a line of a part, after the part's name."""
        colour = self._colours.setdefault(part, COLOURS[len(self._colours) % len(COLOURS)])
        self._print(part, colour, Text.from_ansi(line))

    def announce(self, page: ReadyPage) -> None:
        """Print the panel, and the lines below it."""
        self._console.print(Panel.fit(page.panel, title="Corelane"))
        if page.below:
            self._console.print(page.below, markup=False)

    def _print(self, name: str, style: str, text: Text) -> None:
        self._console.print(Text(f"{name:10}", style=style).append(" │ ", style="dim").append_text(text))


class JsonOutput:
    """Output for programs, on standard output."""

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
        # In the form in which a single part writes its log.
        sys.stdout.write(f"{json.dumps(line, default=str)}\n")
        sys.stdout.flush()


ServeOutput = PrettyOutput | JsonOutput


def as_object(part: str, line: str) -> dict[str, Any]:
    """Return a part's line as an object with its name."""
    if line.startswith("{"):
        try:
            return {**orjson.loads(line), "part": part}
        except orjson.JSONDecodeError:
            pass
    text = Text.from_ansi(line).plain
    if found := FOREIGN_LINE.fullmatch(text):
        return entry(found[3], LEVELS[found[1] or found[2]], part)
    return entry(text, "info", part)


def entry(text: str, level: Level = "info", part: str = "serve") -> dict[str, Any]:
    """Return a line as an object, with the fields of Corelane's logs."""
    timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"event": text, "level": level, "part": part, "timestamp": timestamp}


def ready_page(settings: Settings, password: str, roles: frozenset[str]) -> ReadyPage:
    """Return the addresses and commands, with rich's markup for people; a password from the settings is not shown."""
    redis = without_password(settings.redis_url)
    facts: dict[str, object] = {"roles": sorted(roles), "redis": redis}
    here, lines, below = sorted(roles - {"worker"}), list[str](), list[str]()
    if "worker" in roles:
        facts |= {"cores": settings.cores, "model": settings.model}
        least, most = core_range(settings)
        count = f"{most}" if least == most else f"{least} to {most}"
        here = [f"{count} core{'s' if settings.cores != 1 else ''}", escape(settings.model)]
    if "api" in roles:
        api = local_url(settings.host, settings.port)
        key = " --api-key clk_…" if settings.requires_keys else ""
        first = f"{own_command()} {task_named(DEFAULT_TASK).first_try} --url {api}{key}"
        added = {
            name: f"{api}{path}" for each in installed(CommandPlugin) for name, path in each.addresses(settings).items()
        }
        lines += [f"API      {api}", f"Docs     {api}/docs"]
        lines += [f"{name.capitalize():8} {address}" for name, address in added.items()]
        below.append(f"Try      {first}")
        facts |= {"api": api, "try": first, **added}
    if "flower" in roles:
        flower, user = local_url(settings.flower_host, settings.flower_port), settings.flower_user
        lines.append(f"Flower   {flower}   user [bold]{escape(user)}[/], password [bold]{escape(password)}[/]")
        facts |= {"flower": flower, "flower_user": user}
        facts |= {"flower_password": password} if settings.flower_password is None else {}
    lines.append(f"Redis    {redis}")
    if roles & {"api", "deliveries"}:
        lines.append(f"Webhooks {_describe_webhooks(settings, below, facts)}")
    panel = "\n".join([f"[bold green]ready[/]: {', '.join(here)}", "", *lines, "", "Stop     Ctrl-C"])
    return ReadyPage(panel, "\n".join(below), facts)


def _describe_webhooks(settings: Settings, below: list[str], facts: dict[str, object]) -> str:
    """Return which secret signs webhooks; add to ``below`` how to see a secret that was made here."""
    if settings.webhook_secret is None:
        return "signed with secrets of their owners alone, as CORELANE_WEBHOOK_SECRET is not set"
    if settings.webhook_secret != kept_secret(settings.data_dir):
        return "signed with CORELANE_WEBHOOK_SECRET"
    show = f"{own_command()} webhooks secret --data {shlex.quote(str(settings.data_dir))}"
    facts["webhook_secret"] = show
    below.append(f"Secret   {show}")
    return "signed with the secret made here"


def own_command() -> str:
    """Return this command as a shell here can call it: by its bare name only if that is found."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("corelane")
    if found and (Path(found).resolve() == own.resolve() or Path(found).parent == Path(sys.executable).parent):
        return "corelane"
    script = Path(sys.executable).parent / "corelane"
    return str(script) if script.exists() else f"{sys.executable} -m corelane"
