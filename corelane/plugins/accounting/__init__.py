"""The accounting plugin: what work took and cost, and where its time went."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corelane.plugin import Plugin

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from pydantic_settings import BaseSettings

    from corelane.settings import Settings


class AccountingPlugin(Plugin):
    """``/v1/usage`` and ``corelane usage``, the usage and the times of jobs."""

    name = "accounting"

    def settings(self) -> "type[BaseSettings]":
        """Return how long usage is kept."""
        from corelane.plugins.accounting.settings import AccountingFields

        return AccountingFields

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``corelane usage``."""
        from corelane.plugins.accounting.usage_command import show_usage

        cli.command("usage")(show_usage)

    def routers(self) -> "Iterable[APIRouter]":
        """Return the route of usage."""
        from corelane.plugins.accounting.routes import router

        return (router,)

    def lua(self) -> Sequence[Path]:
        """Return what keeps the times and the usage of jobs and days."""
        return (Path(__file__).parent / "accounting.lua",)

    def prune(self, settings: "Settings") -> Mapping[str, object]:
        """Return for how many days usage is kept."""
        from corelane.plugins.accounting.settings import AccountingFields

        return {"usage_days": settings.of(AccountingFields).usage_days}

    def observers(self, core: Any) -> Iterable[Any]:
        """Return the observer that measures what a core spends on its jobs."""
        from corelane.plugins.accounting.time_book import TimeBook

        return (TimeBook(core.price),)


plugin = AccountingPlugin()
