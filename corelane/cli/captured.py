"""The files of a data folder that a backup takes, each as it was at one moment.

If a service runs, its own Redis pauses writes for a moment and begins a snapshot. In that moment every file of jobs
gets a second name, a hard link. So the file remains even if the service deletes it. A job refers to its file only once
the file is complete, so every file in the snapshot has a link. Nothing is copied in that moment.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corelane.cli.archive import Entry
from corelane.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

#: Small files of a data folder that a restored service needs: the users of Redis, and the secret that signs webhooks.
KEPT = ("webhook-secret", "redis-password", "redis/users.acl", "redis/server.json")

#: Redis' append-only file; the name of its base file, which may be a snapshot; and the content of its list of files.
AOF = "redis/appendonlydir/appendonly.aof"
BASE, LISTED = "appendonly.aof.1.base.rdb", b"file appendonly.aof.1.base.rdb seq 1 type b\n"

#: The folder of second names, beside the files; and the snapshot's name, beside Redis' own files.
ASIDE, SNAPSHOT = ".backup", "backup.rdb"

#: After this time Redis allows writes again, even if this process is killed. In milliseconds.
PAUSE_MS = 10_000

#: Time between two checks whether Redis is done, in seconds.
POLL_S = 0.05

#: Number of tries to begin a snapshot: Redis may be rewriting its own file just then.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of a service's data; ``redis_url`` is its own Redis, if that runs."""

    data: Path
    files: Path
    artifacts: Path | None = None
    redis_url: str | None = None


@contextmanager
def captured(place: Place, *, runs: bool) -> Iterator[list[Entry]]:
    """Yield the files to back up, until the block ends; ``runs`` says that a service may be writing."""
    entries: list[Entry] = [(name, place.data / name) for name in KEPT]
    if place.artifacts is not None:
        entries += [(f"artifacts/{name}", path) for name, path in walk(place.artifacts)]
    if not runs:
        stored = [(f"redis/{name}", path) for name, path in walk(place.data / "redis")]
        entries += [(name, path) for name, path in stored if name not in KEPT]
        entries += [(f"files/{name}", path) for name, path in walk(place.files)]
        yield entries
        return
    aside, snapshot = place.files / ASIDE, place.data / "redis" / SNAPSHOT
    shutil.rmtree(aside, ignore_errors=True)  # left by a backup that was killed
    try:
        link_new(place.files, aside)
        if place.redis_url is not None:
            take_snapshot(place.redis_url, snapshot, lambda: link_new(place.files, aside))
            entries += [(f"{AOF}.manifest", LISTED), (f"{Path(AOF).parent.as_posix()}/{BASE}", snapshot)]
        yield [*entries, *((f"files/{name}", path) for name, path in walk(aside))]
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        snapshot.unlink(missing_ok=True)


def walk(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files below a folder and their relative names, without the second names."""
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if each != ASIDE]
        for name in names:
            path = Path(folder) / name
            yield path.relative_to(root).as_posix(), path


def link_new(root: Path, aside: Path) -> None:
    """Give a second name to every file that has none, or copy it if the disk has no links; skip files that vanished."""
    for name, path in walk(root):
        twin = aside / name
        if twin.exists():
            continue
        twin.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            try:
                twin.hardlink_to(path)
            except OSError:
                shutil.copy2(path, twin)


def take_snapshot(url: str, target: Path, hold: "Callable[[], None]") -> None:
    """Make a Redis on this machine write its snapshot to its folder, as a file named ``target``.

    ``hold`` is called twice while the data is as in the snapshot and writes are paused. A file that is renamed during
    the first call is found in the second. Raise SetupError if Redis cannot do it.
    """
    from redis import Redis
    from redis.exceptions import RedisError

    try:
        with Redis.from_url(url) as server:
            begin(server, hold)
            while server.info("persistence")["rdb_bgsave_in_progress"]:
                time.sleep(POLL_S)
            if server.info("persistence")["rdb_last_bgsave_status"] != "ok":
                free = shutil.disk_usage(target.parent).free / 1024**3
                raise SetupError(
                    f"Redis could not write its snapshot into {target.parent}, where {free:,.1f} GiB are free: make "
                    "room, a snapshot is about as large as Redis' append-only file; its log says more"
                )
            (target.parent / str(server.config_get("dbfilename")["dbfilename"])).replace(target)
    except (RedisError, OSError) as error:
        raise SetupError(f"Redis took no snapshot: {error}") from None


def begin(server: "Redis", hold: "Callable[[], None]") -> None:
    """Begin a snapshot, with writes paused until ``hold`` returns."""
    from redis.exceptions import ResponseError

    for attempt in range(ATTEMPTS):
        while any(server.info("persistence")[f"{child}_in_progress"] for child in ("rdb_bgsave", "aof_rewrite")):
            time.sleep(POLL_S)
        server.client_pause(PAUSE_MS, all=False)
        try:
            server.bgsave(schedule=False)
            hold()
            hold()
            return
        except ResponseError:
            if attempt == ATTEMPTS - 1:
                raise
        finally:
            server.client_unpause()
