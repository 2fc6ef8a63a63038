"""The plugin `files`: files and batches, input and output by URL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from api.plugin import ApiPlugin
from corelane.cli.plugin import CommandPlugin
from corelane.store.plugin import StorePlugin
from workers.plugin import WorkerPlugin

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from pydantic_settings import BaseSettings

    from api.state import AppState
    from corelane.settings import Settings
    from corelane.store.jobs.store import JobStore
    from workers.loops.loop import Loop, LoopTools

#: Room for the other fields besides the file, in bytes.
FORM_BYTES = 64 * 1024

#: The paths to which files are uploaded, and batches with their lines.
UPLOAD_PATHS = ("/v1/files", "/console/files", "/v1/batches")


class FilesPlugin(ApiPlugin, WorkerPlugin, CommandPlugin, StorePlugin):
    """The plugin's parts; each method imports the modules that it needs."""

    name = "files"
    keys = "corelane.plugins.files.store.keys"
    overdue = ("batches",)

    def settings(self) -> "type[BaseSettings]":
        """Return the fields of the plugin's settings."""
        from corelane.plugins.files.settings import FilesFields

        return FilesFields

    def commands(self, cli: "typer.Typer") -> None:
        """Add the groups of batches and files."""
        from corelane.plugins.files.cli.batches import batches
        from corelane.plugins.files.cli.files import files

        for group in (batches, files):
            cli.add_typer(group)

    def api_parts(self, state: "AppState") -> Iterable[object]:
        """Return the stores of files and batches, and the storage of files."""
        from corelane.plugins.files.store.batches import BatchStore
        from corelane.plugins.files.store.files import FileStore
        from corelane.store.file_storage import open_storage

        settings, link, gate = state.settings, state.link, state.gate
        storage = open_storage(settings.files_url, settings.files_root)
        return FileStore(link, gate), BatchStore(link, gate), storage

    def routers(self) -> "Iterable[APIRouter]":
        """Return the routes of files and batches."""
        from corelane.plugins.files.routes import batches, files

        return files.router, batches.router

    def console(self) -> object:
        """Return the pages of files and batches."""
        from corelane.plugins.files.console import pages

        return pages()

    def body_limits(self, settings: "Settings") -> Mapping[str, tuple[int, str]]:
        """Return the most bytes of a file upload."""
        from corelane.plugins.files.settings import FilesFields

        most = settings.of(FilesFields).max_file_bytes + FORM_BYTES
        return dict.fromkeys(UPLOAD_PATHS, (most, "CORELANE_MAX_FILE_BYTES"))

    async def check_url(self, settings: "Settings", store: "JobStore", name: str, url: str, owner: str) -> bool:
        """Allow the URL of a job's input or output, or raise the reason why it is refused."""
        from corelane.plugins.files.references.checks import check_url

        await check_url(settings, store, name, url, owner)
        return True

    async def check_files(self, settings: "Settings", store: "JobStore", names: Mapping[str, str], owner: str) -> bool:
        """Allow the files that items name, or raise the reason why one is refused."""
        from corelane.plugins.files.references.item_files import check_files

        await check_files(settings, store.link, names, owner)
        return True

    def fetch(self, settings: "Settings") -> "Callable[[str, str, int | None], tuple[bytes, str]]":
        """Return what fetches the files that items name."""
        from corelane.plugins.files.references.item_files import fetch

        return partial(fetch, settings)

    def loops(self, queue: str, tools: "LoopTools") -> "Iterable[Loop]":
        """Return the keeper's loops: one runs batches, one reads and writes what jobs name by URL."""
        from corelane.domain.dispatch import KEEPER_QUEUE
        from corelane.plugins.files.loops import batching, carrying

        return (batching(tools), carrying(tools)) if queue == KEEPER_QUEUE else ()

    def lua(self) -> Sequence[Path]:
        """Return the Lua steps of files and batches, and of jobs with input or output by URL."""
        return [Path(__file__).parent / "lua" / f"{name}.lua" for name in ("references", "batches")]


plugin = FilesPlugin()
