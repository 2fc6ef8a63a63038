"""The fleet plugin: cores started and stopped by load, and files that start one worker for each core of a host."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from api.plugin import ApiPlugin
from corelane.cli.plugin import CommandPlugin
from corelane.store.plugin import StorePlugin
from workers.plugin import WorkerPlugin

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter

    from corelane.metrics.exposition import MetricSample
    from corelane.store.link.link import CommonLink
    from workers.loops.loop import Loop, LoopTools


class FleetPlugin(ApiPlugin, WorkerPlugin, CommandPlugin, StorePlugin):
    """``/v1/scaling``, its gauges, the autoscaler of `serve`, ``corelane compose``, ``logs`` and ``down``."""

    name = "fleet"

    def commands(self, cli: "typer.Typer") -> None:
        """Add the commands about containers."""
        from corelane.plugins.fleet.compose_command import compose
        from corelane.plugins.fleet.containers import down, logs

        for command in (compose, logs, down):
            cli.command(rich_help_panel="Containers")(command)

    def routers(self) -> "Iterable[APIRouter]":
        """Return the route of the desired cores."""
        from corelane.plugins.fleet.routes import router

        return (router,)

    def loops(self, queue: str, tools: "LoopTools") -> "Iterable[Loop]":
        """Return the keeper's loop that computes the desired cores."""
        from corelane.domain.dispatch import KEEPER_QUEUE
        from corelane.plugins.fleet.scaler import scaling

        return (scaling(tools),) if queue == KEEPER_QUEUE else ()

    async def gauges(self, link: "CommonLink") -> "Sequence[MetricSample]":
        """Return the desired cores and the backlog from which they are computed."""
        from corelane.plugins.fleet.scaler import gauges

        return await gauges(link)


plugin = FleetPlugin()
