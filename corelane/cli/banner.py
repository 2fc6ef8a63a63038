"""The page of `corelane serve` once it is ready: where everything is, and a command to try that works as it stands."""

import shlex
import shutil
import sys
from pathlib import Path

from rich.markup import escape

from corelane.cli.voice import ReadyPage
from corelane.cli.webhook_secret import kept_secret
from corelane.domain.addresses import local_url
from corelane.settings import Settings
from corelane.settings.rules import without_password


def ready_page(settings: Settings, password: str, *, has_flower: bool) -> ReadyPage:
    """Return the addresses and commands, with rich's markup for people; a password that was set is not repeated."""
    api, redis = local_url(settings.host, settings.port), without_password(settings.redis_url)
    key = " --api-key clk_…" if settings.requires_keys else ""
    first = f'{own_command()} ask "Who wrote it?" --context "Ada wrote it." --url {api}{key}'
    facts = {"cores": settings.cores, "model": settings.model, "redis": redis, "api": api, "try": first}
    cores = f"{settings.cores} core{'s' if settings.cores != 1 else ''}"
    lines = [f"[bold green]ready[/]: {cores}, {escape(settings.model)}", "", f"API      {api}", f"Docs     {api}/docs"]
    if has_flower:
        flower = local_url(settings.flower_host, settings.flower_port)
        user = f"user [bold]{escape(settings.flower_user)}[/], password [bold]{escape(password)}[/]"
        lines.append(f"Flower   {flower}   {user}")
        facts |= {"flower": flower, "flower_user": settings.flower_user}
        if settings.flower_password is None:
            facts["flower_password"] = password
    below = f"Try      {first}"
    signed = "signed with CORELANE_WEBHOOK_SECRET"
    if settings.webhook_secret is None:
        signed = "refused: set CORELANE_WEBHOOK_SECRET"
    elif settings.webhook_secret == kept_secret(settings.data_dir):
        signed = "signed with the secret made here"
        show = f"{own_command()} webhooks secret --data {shlex.quote(str(settings.data_dir))}"
        facts["webhook_secret"] = show
        below += f"\nSecret   {show}"
    panel = "\n".join([*lines, f"Redis    {redis}", f"Webhooks {signed}", "", "Stop     Ctrl-C"])
    return ReadyPage(panel, below, facts)


def own_command() -> str:
    """Return this command as any shell here can call it: by its name only where that finds it."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("corelane")
    if found and (Path(found).resolve() == own.resolve() or Path(found).parent == Path(sys.executable).parent):
        return "corelane"
    script = Path(sys.executable).parent / "corelane"
    return str(script) if script.exists() else f"{sys.executable} -m corelane"
