"""The plugin interface of the store: what a plugin with data of its own in Redis adds to the upkeep of all data."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from corelane.plugin import Plugin, installed

if TYPE_CHECKING:
    from corelane.domain.conditions import HealthIssue
    from corelane.metrics.exposition import MetricSample
    from corelane.settings import Settings
    from corelane.store.jobs.store import JobStore
    from corelane.store.link.link import CommonLink


class StorePlugin(Plugin):
    """A plugin with data of its own in the store."""

    #: The kinds of this plugin's work that the keeper does, and that may become overdue (``corelane.store.gauges``).
    overdue: Sequence[str] = ()

    async def check_url(self, settings: "Settings", store: "JobStore", name: str, url: str, owner: str) -> bool:
        """Return whether this plugin handles a job's ``input_url`` or ``output_url``; raise the error that refuses it.

        ``name`` is the name of the field. A URL that no plugin handles is refused.
        """
        return False

    async def check_files(self, settings: "Settings", store: "JobStore", names: Mapping[str, str], owner: str) -> bool:
        """Return whether this plugin fetches what items name; raise the error that refuses one.

        ``names`` are the URLs and ids of files, each with its place. If no plugin fetches them, they are refused.
        """
        return False

    def fetch(self, settings: "Settings") -> "Callable[[str, str, int | None], tuple[bytes, str]] | None":
        """Return what fetches the files that items name (``corelane.engine.task.Fetch``), if this plugin does."""
        return None

    async def gauges(self, link: "CommonLink") -> "Sequence[MetricSample]":
        """Return the plugin's samples for ``/metrics``, read from Redis at each scrape."""
        return ()

    async def health_issues(self, link: "CommonLink") -> "Sequence[HealthIssue]":
        """Return the issues of the plugin's part of the service, for ``/v1/overview`` and `corelane doctor`."""
        return ()


def file_fetcher(settings: "Settings") -> "Callable[[str, str, int | None], tuple[bytes, str]] | None":
    """Return what fetches the files that items name (``corelane.engine.task.Fetch``); None without a plugin for it."""
    return next(filter(None, (plugin.fetch(settings) for plugin in installed(StorePlugin))), None)
