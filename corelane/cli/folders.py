"""The data folder on the command line: the option that names it, the lock on it, and the error if it is unusable."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.settings.rules import without_password

#: The lock that a running `corelane serve` holds, and the file in which it names its parts.
LOCK, PARTS_FILE = "serve.lock", "parts.json"

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder, as of `corelane serve --data`; CORELANE_DATA_DIR if not given."),
]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock the data folder for the block; raise SetupError if another process holds it or it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except (FileExistsError, NotADirectoryError):
        raise SetupError(f"--data {folder}: this is a file, or is below one; give a folder") from None
    except OSError as error:
        raise SetupError(f"--data {folder}: it cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SetupError(f"another `corelane serve` uses {folder}; stop it, or name a folder with --data") from None
        yield


def running_service(folder: Path) -> Mapping[str, Any] | None:
    """Return the notes of the `corelane serve` that runs on this data folder; None if none runs."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pass
    except OSError:
        return None
    try:
        noted = json.loads((folder / PARTS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def places(settings: Settings) -> dict[str, str | None]:
    """Return where a service keeps its data outside Redis, in the form of the service's notes in ``parts.json``."""
    return {
        "files_dir": str(settings.files_root),
        "artifacts_dir": str(settings.artifact_root),
        "files_url": settings.files_url and without_password(settings.files_url),
    }


def writable_folder(folder: Path) -> Path:
    """Return the folder, made if needed; raise SetupError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".corelane-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SetupError(f"{folder} cannot be written: {error.strerror}; name another folder with --data") from None
    return folder


def create_private(path: Path) -> IO[bytes]:
    """Open a new file that only this user can read; raise FileExistsError if it exists."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def keep_private(path: Path, text: str) -> None:
    """Write a line into a new file that only this user can read, unless the file exists. The file appears complete."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with create_private(beside) as file:
            file.write(f"{text}\n".encode())
        try:
            os.link(beside, path)
        except FileExistsError:
            pass
        except OSError:
            beside.rename(path)  # the disk has no links
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)


def read_private(path: Path, what: str) -> str:
    """Return the line in a private file; raise SetupError, which calls the file ``what``, if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the {what} in {path} cannot be read: {error}") from None


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or the first above it that exists and can be read."""
    for path in (folder, *folder.parents):
        try:
            if path.exists():
                return path
        except OSError:
            continue
    return Path("/")
