"""``corelane backup`` and ``corelane restore``: everything that a service needs to start again, in one file."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from corelane import __version__
from corelane.cli.archive import require_new, unpack, write_archive
from corelane.cli.captured import Place, captured
from corelane.cli.errors import require
from corelane.cli.folders import LOCK, DataOption, only_one, running_service
from corelane.cli.output import error_console, print_sentence
from corelane.cli.service import JsonOption
from corelane.domain.ids import iso_time
from corelane.errors import SetupError
from corelane.settings import Settings, read_settings

#: The folder, in the data folder, where a restore unpacks until everything has been checked.
ASIDE = ".restoring"


def backup(
    target: Annotated[Path, typer.Argument(help="The new file, or a folder in which one is made.", show_default=False)],
    with_artifacts: Annotated[
        bool, typer.Option("--with-artifacts", help="Compiled models too, which can be compiled again.")
    ] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the data of a service into one file, while it works or stands still: jobs, results, keys, files, secrets."""
    require("api", "redis")
    settings = read_settings(data_dir=data)
    folder = settings.data_dir.resolve()
    if not folder.is_dir():
        raise SetupError(f"there is no data folder {folder}: name that of the service with --data")
    from corelane.cli.local import unwound_by_sigterm

    made_at = iso_time(int(1000 * time.time()))
    if target.is_dir():
        target /= f"corelane-{made_at[:19].replace(':', '')}.tar"
    require_new(target)
    with ExitStack() as stack:
        stack.enter_context(unwound_by_sigterm())
        stack.enter_context(one_at_a_time(folder))
        noted = running_service(folder)
        if noted is None:
            stack.enter_context(only_one(folder))
        place = _place(settings, folder, noted, with_artifacts)
        entries = stack.enter_context(captured(place, runs=noted is not None))
        about = {"corelane": __version__, "created_at": made_at}
        manifest = write_archive(target, entries, about)
    for sentence in _missing(manifest, settings.files_url if noted is None else noted.get("files_url")):
        error_console().print(sentence)
    _print(manifest, target, as_json, "kept in")


def restore(
    source: Annotated[Path, typer.Argument(help="A file made by `corelane backup`.", show_default=False)],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a backup into an empty data folder, on which `corelane serve` then starts."""
    from corelane.cli.local import unwound_by_sigterm

    settings = read_settings(data_dir=data)
    folder = settings.data_dir.resolve()
    with unwound_by_sigterm(), only_one(folder):
        if others := sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, ASIDE)):
            raise SetupError(f"{folder} is not empty ({', '.join(others[:3])}): name an empty folder with --data")
        aside = folder / ASIDE
        shutil.rmtree(aside, ignore_errors=True)  # left by a restore that was killed
        try:
            aside.mkdir(mode=0o700)
            manifest = unpack(source, aside)
            os.sync()
            for path in aside.iterdir():
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    for sentence in _missing(manifest, settings.files_url):
        error_console().print(sentence)
    for name, root in (("FILES", settings.files_root), ("ARTIFACTS", settings.artifact_root)):
        if root != (here := folder / name.lower()) and here.exists():
            error_console().print(f"put what is in {here} into {root}, where CORELANE_{name}_DIR says it is")
    _print(manifest, folder, as_json, f"from {manifest['created_at']} put into")
    if not as_json:
        typer.echo(f"start it: corelane serve --data {folder}")


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the folder for one backup; raise SetupError if another is being made."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SetupError(f"another backup of {folder} is being made: wait for it") from None
    finally:
        os.close(held)


def _place(settings: Settings, folder: Path, noted: Mapping[str, Any] | None, with_artifacts: bool) -> Place:
    """Return the folders of the data: as the running service noted them, or else as the settings say."""
    if noted is not None and "redis" not in noted:
        raise SetupError(f"the service on {folder} is starting: try again once it is ready")
    from corelane.cli.redis_users import operator_url

    noted = {} if noted is None else noted
    url = operator_url(noted) if "redis_password_file" in noted else None
    files, artifacts = noted.get("files_dir", settings.files_root), noted.get("artifacts_dir", settings.artifact_root)
    return Place(folder, Path(files), Path(artifacts) if with_artifacts else None, url)


def _missing(manifest: Mapping[str, Any], files_url: str | None) -> Iterator[str]:
    """Yield a sentence for each part of the service that the backup does not contain."""
    names = manifest["files"]
    if not any(name.startswith("redis/appendonlydir/") for name in names):
        yield "no Redis is in it, as `corelane serve` did not start one here: back yours up by its own means as well"
    if "webhook-secret" not in names:
        yield "no webhook secret is in it: keep CORELANE_WEBHOOK_SECRET with your settings"
    if files_url is not None:
        yield "the files at CORELANE_FILES_URL are not in it: back them up where they are"


def _print(manifest: Mapping[str, Any], place: Path, as_json: bool, what: str) -> None:
    size = sum(size for size, _ in manifest["files"].values())
    about = {name: manifest[name] for name in ("corelane", "created_at")}
    found = {"path": str(place), "files": len(manifest["files"]), "bytes": size} | about
    print_sentence(found, as_json, f"{len(manifest['files']):,} files, {size / 1e6:,.1f} MB, {what} {place}")
