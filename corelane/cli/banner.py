"""What `corelane serve` says once it is ready: where everything is, and a command to try that works as it stands."""

import shlex
import shutil
import sys
from pathlib import Path

from rich.markup import escape

from corelane.cli.addresses import http_url
from corelane.cli.webhook_secret import kept_secret
from corelane.settings import Settings
from corelane.settings.rules import without_password


def banner(settings: Settings, password: str, *, has_flower: bool) -> str:
    """The addresses, with rich's markup, for people."""
    cores = f"{settings.cores} core{'s' if settings.cores != 1 else ''}"
    api = http_url(settings.host, settings.port)
    lines = [f"[bold green]ready[/]: {cores}, {escape(settings.model)}", "", f"API      {api}", f"Docs     {api}/docs"]
    if has_flower:
        user = f"user [bold]{escape(settings.flower_user)}[/], password [bold]{escape(password)}[/]"
        lines.append(f"Flower   {flower_url(settings)}   {user}")
    lines.append(f"Redis    {without_password(settings.redis_url)}")
    lines.append(f"Webhooks {webhooks_line(settings)}")
    return "\n".join([*lines, "", "Stop     Ctrl-C"])


def facts(settings: Settings, password: str, *, has_flower: bool) -> dict[str, object]:
    """The same for programs; a password that was set is not repeated."""
    found: dict[str, object] = {
        "cores": settings.cores,
        "model": settings.model,
        "redis": without_password(settings.redis_url),
        "api": http_url(settings.host, settings.port),
        "try": try_command(settings),
    }
    if has_flower:
        found |= {"flower": flower_url(settings), "flower_user": settings.flower_user}
        if settings.flower_password is None:
            found["flower_password"] = password
    if secret_is_kept(settings):
        found["webhook_secret"] = secret_command(settings)
    return found


def webhooks_line(settings: Settings) -> str:
    """Whether webhooks are signed, and with what."""
    if settings.webhook_secret is None:
        return "refused: set CORELANE_WEBHOOK_SECRET"
    return "signed with the secret made here" if secret_is_kept(settings) else "signed with CORELANE_WEBHOOK_SECRET"


def commands(settings: Settings) -> str:
    """Commands to copy, each a line that is never cut."""
    lines = [f"Try      {try_command(settings)}"]
    if secret_is_kept(settings):
        lines.append(f"Secret   {secret_command(settings)}")
    return "\n".join(lines)


def secret_is_kept(settings: Settings) -> bool:
    """Whether webhooks are signed with the secret in the data folder."""
    return settings.webhook_secret is not None and settings.webhook_secret == kept_secret(settings.data_dir)


def secret_command(settings: Settings) -> str:
    """What shows the secret that was made."""
    return f"{own_command()} webhooks secret --data {shlex.quote(str(settings.data_dir))}"


def try_command(settings: Settings) -> str:
    """A first question."""
    key = " --api-key clk_…" if settings.requires_keys else ""
    url = http_url(settings.host, settings.port)
    return f'{own_command()} ask "Who wrote it?" --context "Ada wrote it." --url {url}{key}'


def flower_url(settings: Settings) -> str:
    """Where Flower is found from this machine."""
    return http_url(settings.flower_host, settings.flower_port)


def own_command() -> str:
    """How this command is called from any shell here: by its name only where that finds it."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("corelane")
    if found and (Path(found).resolve() == own.resolve() or Path(found).parent == Path(sys.executable).parent):
        return "corelane"
    script = Path(sys.executable).parent / "corelane"
    return str(script) if script.exists() else f"{sys.executable} -m corelane"
