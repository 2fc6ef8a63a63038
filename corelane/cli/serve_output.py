"""The output of `serve`: for people, lines after the name of the part that wrote them; for programs, logs as they are.

For programs, `serve` and its parts write JSON objects, one a line, except Redis and Flower, which write text.
"""

import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import orjson
from rich.console import Console
from rich.text import Text

from corelane.cli.plugin import CommandPlugin
from corelane.cli.roles import FLOWER_USER
from corelane.cli.supervisor import Level
from corelane.cli.webhook_secrets import kept_secret
from corelane.domain.jobs import DEFAULT_TASK
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.settings.address import local_url
from corelane.settings.rules import without_password
from corelane.tasks.registry import task_named

STYLES: Mapping[str, str] = {"info": "bold", "warning": "yellow", "error": "bold red"}

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


class PrefixedOutput:
    """Output for people: lines after coloured names."""

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

    def announce(self, facts: Mapping[str, object]) -> None:
        """Print where everything is, now that it is ready."""
        for name, fact in {"ready": "Ctrl-C stops it", **facts}.items():
            self.say(f"{name.replace('_', ' '):16} {fact}")

    def _print(self, name: str, style: str, text: Text) -> None:
        self._console.print(Text(f"{name:10}", style=style).append(" │ ", style="dim").append_text(text))


class JsonOutput:
    """Output for programs, on standard output; the parts write there themselves."""

    show = None

    def say(self, text: str, level: Level = "info") -> None:
        """Write a sentence of `serve` itself as an event, with the fields of Corelane's logs."""
        self._write(text, level, {})

    def announce(self, facts: Mapping[str, object]) -> None:
        """Write the event ``ready`` with the facts."""
        self._write("ready", "info", facts)

    def _write(self, text: str, level: Level, facts: Mapping[str, object]) -> None:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"event": text, "level": level, "part": "serve", "timestamp": at, **facts}
        sys.stdout.write(f"{orjson.dumps(line).decode()}\n")
        sys.stdout.flush()


ServeOutput = PrefixedOutput | JsonOutput


def ready_facts(settings: Settings, password: str, roles: frozenset[str]) -> dict[str, object]:
    """Return the addresses of a ready service and commands to try; passwords from the settings are not shown."""
    facts: dict[str, object] = {"roles": ", ".join(sorted(roles))}
    if "worker" in roles:
        facts |= {"cores": settings.cores, "model": settings.model}
    if "api" in roles:
        api = local_url(settings.host, settings.port)
        key = "CORELANE_API_KEY=clk_… " if settings.requires_keys else ""
        facts |= {"api": api, "docs": f"{api}/docs"}
        for plugin in installed(CommandPlugin):
            facts |= {name: f"{api}{path}" for name, path in plugin.addresses(settings).items()}
        facts["try"] = f"{key}{own_command()} {task_named(DEFAULT_TASK).first_try} --url {api}"
    if "flower" in roles:
        facts |= {
            "flower": local_url(settings.flower_host, settings.flower_port),
            "flower_user": FLOWER_USER,
            "flower_password": password if settings.flower_password is None else "CORELANE_FLOWER_PASSWORD",
        }
    facts["redis"] = without_password(settings.redis_url)
    if roles & {"api", "deliveries"}:
        facts["webhook_secret"] = _where_secret(settings)
    return facts


def _where_secret(settings: Settings) -> str:
    """Return which setting or command has the secret that signs webhooks, or that only owners have secrets."""
    if settings.webhook_secret is None:
        return "only those of owners, as CORELANE_WEBHOOK_SECRET is not set"
    if settings.webhook_secret != kept_secret(settings.data_dir):
        return "CORELANE_WEBHOOK_SECRET"
    return f"{own_command()} webhooks secrets show --data {shlex.quote(str(settings.data_dir))}"


def own_command() -> str:
    """Return this command as a shell here can call it: by its bare name only if that is found."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("corelane")
    if found and (Path(found).resolve() == own.resolve() or Path(found).parent == Path(sys.executable).parent):
        return "corelane"
    script = Path(sys.executable).parent / "corelane"
    return str(script) if script.exists() else f"{sys.executable} -m corelane"
