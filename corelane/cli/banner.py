"""What `corelane serve` says once it is ready: where everything is, and a command to try that works as it stands."""

import shutil
import sys
from pathlib import Path

from corelane.cli.addresses import http_url, without_password
from corelane.settings import Settings


def banner(settings: Settings, password: str, *, has_flower: bool) -> str:
    """The addresses, with rich's markup, for people."""
    cores = f"{settings.cores} core{'s' if settings.cores != 1 else ''}"
    api = http_url(settings.host, settings.port)
    lines = [f"[bold green]ready[/]: {cores}, {settings.model}", "", f"API      {api}", f"Docs     {api}/docs"]
    if has_flower:
        user = f"user [bold]{settings.flower_user}[/], password [bold]{password}[/]"
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
    return found


def webhooks_line(settings: Settings) -> str:
    """Whether webhooks are signed, and where the secret is found."""
    if settings.webhook_secret is None:
        return "refused: set CORELANE_WEBHOOK_SECRET, the same for all that share this Redis"
    return "signed; `corelane webhooks secret` shows the secret"


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
