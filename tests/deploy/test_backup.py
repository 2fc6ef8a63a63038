"""A backup has every file that its Redis names, is whole or not there, and is put back whole or not at all."""

import os
import subprocess
import tarfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from corelane.cli.folders import LOCK, PARTS_FILE, only_one
from corelane.cli.redis_server import find_server, server_argv
from corelane.cli.redis_users import OPERATOR, PASSWORD_FILE, keep_password, with_user, write_users
from tests.conftest import free_port
from tests.tools.redis import client_of
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

TEXT = b'["n1","Who?","Ada.",4]\n' * 1000


def backup(data: Path, target: Path, *, room_kb: str = "unlimited") -> "subprocess.CompletedProcess[str]":
    return run(f"ulimit -f {room_kb}; exec deploy/backup.sh {data} {target}")


def restore(source: Path, data: Path) -> "subprocess.CompletedProcess[str]":
    return run(f"deploy/restore.sh {source} {data}")


def run(command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data folder of a service that does not run."""
    kept = {
        "webhook-secret": b"whsec_x\n",
        "redis/appendonlydir/appendonly.aof.manifest": b"file a seq 1 type b\n",
        "redis/appendonlydir/a": os.urandom(5000),
        "files/job_1.jsonl": TEXT,
        "files/kept/file_1": b"uploaded",
        "artifacts/model/weights": b"large",
        "fetched/copy": b"made again",
    }
    for name, content in kept.items():
        (path := tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "data"


def held(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_backup_of_a_service_that_stands_still_has_all_but_what_can_be_made_again(data: Path, tmp_path: Path) -> None:
    before = held(data)
    assert backup(data, tmp_path / "x.tar").returncode == 0
    assert restore(tmp_path / "x.tar", tmp_path / "new").returncode == 0
    made_again = ("artifacts/model/weights", "fetched/copy")
    assert held(tmp_path / "new") == {name: text for name, text in before.items() if name not in made_again}
    assert held(data) == before
    assert not list(tmp_path.glob("*.part"))
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "x.tar", tmp_path / "new")}
    assert modes == {0}


def test_backup_that_cannot_be_made_says_why_and_leaves_nothing(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    assert "a backup replaces none" in backup(data, tmp_path / "mine").stderr
    assert (tmp_path / "mine").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    assert "back yours up by its own means" in backup(tmp_path / "empty", tmp_path / "x").stderr
    with only_one(data):
        assert "is starting: try again" in backup(data, tmp_path / "x").stderr
    full = backup(data, tmp_path / "x", room_kb="10")
    assert full.returncode != 0
    assert {path.name for path in tmp_path.iterdir()} == {"data", "empty", "mine"}
    assert {path.name for path in data.iterdir()} >= {"files", "redis"}
    assert not (data / "files.backup").exists()


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_backup_that_was_changed_or_cut_off_is_refused_and_nothing_is_restored(
    data: Path, tmp_path: Path, at: float
) -> None:
    backup(data, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    with tarfile.open(tmp_path / "x") as tar:
        members = [each for each in tar.getmembers() if each.size]
    member = members[int(at * len(members))]
    changed = bytearray(whole)
    changed[member.offset_data + member.size // 2] ^= 1
    for content in (bytes(changed), whole[: int(at * len(whole))]):
        (tmp_path / "x").write_bytes(content)
        refused = restore(tmp_path / "x", tmp_path / "new")
        assert refused.returncode == 1
        assert "is no whole backup: nothing was restored" in refused.stderr
        assert not (tmp_path / "new").exists()


def test_restore_needs_a_new_folder(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "x")
    before = held(data)
    assert "is not empty" in restore(tmp_path / "x", data).stderr
    assert held(data) == before
    (tmp_path / "new").mkdir()
    assert restore(tmp_path / "x", tmp_path / "new").returncode == 0
    assert "there is no file" in restore(tmp_path / "nothing", tmp_path / "other").stderr


@contextmanager
def server_on(data: Path) -> Iterator[Any]:
    """Run a Redis as `serve` does, with what `serve` notes of it; yield a client of the operator."""
    (data / "redis").mkdir(parents=True, exist_ok=True)
    (data / "files").mkdir(exist_ok=True)
    password, port = keep_password(data / PASSWORD_FILE), free_port()
    users = write_users(data / "redis", password, "service", "worker")
    argv, url = server_argv(find_server(), data / "redis", port, users), f"redis://127.0.0.1:{port}/0"
    with only_one(data), subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            with client_of(with_user(url, OPERATOR, password)) as client:
                eventually(client.ping)
                (data / PARTS_FILE).write_bytes(orjson.dumps({"redis": url, "files_dir": str(data / "files")}))
                yield client
        finally:
            process.kill()


def churn(client: redis.Redis, files: Path, is_over: threading.Event) -> None:
    """Add files and name them in Redis, and take away the names of old ones and then the files, as jobs do."""
    alive: deque[str] = deque()
    for number in count():
        if is_over.is_set():
            return
        early, name = files / f"early_{number}", f"job_{number}.jsonl"
        early.write_text(name)
        early.rename(files / name)
        client.sadd("named", name)
        alive.append(name)
        if len(alive) > 20:
            client.srem("named", alive[0])
            (files / alive.popleft()).unlink()


def test_every_file_that_the_snapshot_of_a_busy_service_names_is_in_the_backup(tmp_path: Path) -> None:
    data, is_over = tmp_path / "data", threading.Event()
    with server_on(data) as client:
        writer = threading.Thread(target=churn, args=(client, data / "files", is_over))
        writer.start()
        try:
            for number in range(5):
                eventually(lambda: len(client.smembers("named")) >= 20)
                done = backup(data, tmp_path / f"{number}.tar")
                assert done.returncode == 0, done.stderr
        finally:
            is_over.set()
            writer.join()
        assert not (data / "redis" / "dump.rdb").exists()
        assert not (data / "files.backup").exists()
    for number in range(5):
        folder = tmp_path / str(number)
        assert restore(tmp_path / f"{number}.tar", folder).returncode == 0
        with server_on(folder) as client:
            named = client.smembers("named")
            client.set("written", "after the restore")
        assert len(named) >= 20
        assert {name: (folder / "files" / name).read_text() for name in named} == {name: name for name in named}
    with server_on(tmp_path / "4") as client:
        assert client.get("written") is not None


def test_service_whose_backup_fails_takes_writes_again(tmp_path: Path) -> None:
    with server_on(tmp_path / "data") as client:
        (tmp_path / "data" / "redis" / "dump.rdb").mkdir()  # where the snapshot cannot be written
        failed = backup(tmp_path / "data", tmp_path / "x")
        assert "Redis could not write its snapshot" in failed.stderr
        assert client.set("a", "b")
    assert not (tmp_path / "x").exists()
