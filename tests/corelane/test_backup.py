"""A backup is whole or not there, has every file that its Redis names, and is put back whole or not at all."""

import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from corelane.cli.archive import MANIFEST, unpack, write_archive
from corelane.cli.backup import backup, one_at_a_time, restore
from corelane.cli.captured import ASIDE, SNAPSHOT, Place, captured
from corelane.cli.folders import LOCK, PARTS_FILE, only_one
from corelane.cli.redis_server import find_server, server_argv
from corelane.errors import SetupError
from tests.conftest import free_port
from tests.tools.redis import client_of
from tests.tools.waiting import eventually

TEXT = b'["n1","Who?","Ada.",4]\n' * 1000


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
        "serve.lock": b"",
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
    backup(tmp_path / "whole.tar", with_artifacts=True, data=data)
    backup(tmp_path / "small.tar", data=data)
    restore(tmp_path / "whole.tar", data=tmp_path / "whole")
    restore(tmp_path / "small.tar", data=tmp_path / "small")
    made_again = ("artifacts/model/weights", "fetched/copy")
    assert held(tmp_path / "whole") == {name: text for name, text in before.items() if name != made_again[1]}
    assert held(tmp_path / "small") == {name: text for name, text in before.items() if name not in made_again}
    assert held(data) == before
    modes = {path.stat().st_mode & 0o777 for path in [tmp_path / "whole.tar", tmp_path / "whole" / "webhook-secret"]}
    assert modes == {0o600}
    assert (tmp_path / "whole/files/job_1.jsonl").stat().st_mtime == (data / "files/job_1.jsonl").stat().st_mtime


def test_backup_without_files_redis_or_secret_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "backups").mkdir()
    backup(tmp_path / "backups", data=tmp_path / "data", as_json=True)
    out, told = capsys.readouterr()
    made = json.loads(out)
    assert Path(made["path"]).parent == tmp_path / "backups"
    assert made["files"] == 0
    assert "no Redis is in it" in told
    assert "no webhook secret is in it" in told
    restore(Path(made["path"]), data=tmp_path / "restored")
    assert "no Redis is in it" in capsys.readouterr().err


def test_backup_replaces_no_file_and_needs_a_data_folder(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(SetupError, match="a backup replaces none"):
        backup(tmp_path / "mine", data=data)
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(SetupError, match="there is no data folder"):
        backup(tmp_path / "new", data=tmp_path / "nowhere")
    with pytest.raises(SetupError, match="cannot be used: No such file or directory"):
        backup(tmp_path / "nowhere" / "new", data=data)


def test_backup_while_a_service_starts_or_another_backup_is_made_is_refused(data: Path, tmp_path: Path) -> None:
    with only_one(data), pytest.raises(SetupError, match="is starting: try again"):
        backup(tmp_path / "new", data=data)
    os.mkfifo(data / "files" / "later")  # is no file, and is left out
    with one_at_a_time(data), pytest.raises(SetupError, match="another backup"):
        backup(tmp_path / "new", data=data)
    backup(tmp_path / "new", data=data)


@pytest.mark.parametrize("at", [0.02, 0.2, 0.5, 0.8, 0.95])
def test_changed_backup_is_refused_and_nothing_is_restored(data: Path, tmp_path: Path, at: float) -> None:
    backup(tmp_path / "x", data=data)
    content = bytearray((tmp_path / "x").read_bytes())
    with tarfile.open(tmp_path / "x") as tar:
        members = tar.getmembers()
    member = members[int(at * len(members))]
    content[member.offset_data + member.size // 2] ^= 1
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SetupError, match=r"is no whole backup: .*changed"):
        restore(tmp_path / "x", data=tmp_path / "restored")
    assert held(tmp_path / "restored") == {}


@pytest.mark.parametrize("left", [0, 300, 512, 0.3, 0.9, -10_240])
def test_backup_that_was_cut_off_is_refused_and_nothing_is_restored(data: Path, tmp_path: Path, left: float) -> None:
    backup(tmp_path / "x", data=data)
    whole = (tmp_path / "x").read_bytes()
    with tarfile.open(tmp_path / "x") as tar:
        end = tar.getmember(MANIFEST).offset
    (tmp_path / "x").write_bytes(whole[: end if left < 0 else int(left * end) if 0 < left < 1 else int(left)])
    with pytest.raises(SetupError, match="is no whole backup"):
        restore(tmp_path / "x", data=tmp_path / "restored")
    assert held(tmp_path / "restored") == {}


def forged(path: Path, *members: tarfile.TarInfo, **about: object) -> Path:
    """Write an archive of empty members, with a right manifest."""
    empty = (0, hashlib.sha256().hexdigest())
    text = json.dumps({"format": 1, "files": {each.name: empty for each in members}} | about).encode()
    manifest = tarfile.TarInfo(MANIFEST)
    whole = hashlib.sha256(text).hexdigest().encode() + b"\n" + text
    manifest.size = len(whole)
    with tarfile.open(path, "w") as tar:
        for each in members:
            tar.addfile(each)
        tar.addfile(manifest, io.BytesIO(whole))
    return path


@pytest.mark.parametrize("name", ["../x", "/etc/x", "files/../../x", "bin/x", "."])
def test_backup_that_would_write_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="is not to be in a backup"):
        unpack(forged(tmp_path / "x", tarfile.TarInfo(name)), tmp_path / "a" / "b")
    link = tarfile.TarInfo("files/x")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(SetupError, match="is not to be in a backup"):
        unpack(forged(tmp_path / "y", link), tmp_path / "a" / "b")
    assert [path for path in tmp_path.rglob("*") if path.name == "x"] == [tmp_path / "x"]


def test_backup_of_a_newer_format_is_refused_with_the_release_that_wrote_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"was written by Corelane 9\.1 in a newer format"):
        restore(forged(tmp_path / "x", format=2, corelane="9.1"), data=tmp_path / "restored")
    with pytest.raises(SetupError, match="cannot be read"):
        restore(tmp_path / "nothing", data=tmp_path / "restored")


def test_restore_refuses_a_folder_in_use_and_clears_what_a_killed_one_left(data: Path, tmp_path: Path) -> None:
    backup(tmp_path / "x", data=data)
    with pytest.raises(SetupError, match=r"is not empty \(artifacts, fetched, files\)"):
        restore(tmp_path / "x", data=data)
    with only_one(tmp_path / "new"), pytest.raises(SetupError, match="another `corelane serve` uses"):
        restore(tmp_path / "x", data=tmp_path / "new")
    (tmp_path / "new" / ".restoring" / "redis").mkdir(parents=True)
    restore(tmp_path / "x", data=tmp_path / "new")
    assert (tmp_path / "new" / "files" / "job_1.jsonl").read_bytes() == TEXT
    assert not (tmp_path / "new" / ".restoring").exists()


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_is_named_and_leaves_nothing(data: Path, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    with room_for(10_000), pytest.raises(SetupError, match=r"there is no room for .*x: free some"):
        backup(tmp_path / "backups" / "x", data=data)
    assert list((tmp_path / "backups").iterdir()) == []
    backup(tmp_path / "x", data=data)
    with room_for(10_000), pytest.raises(SetupError, match=r"there is no room for .*new"):
        restore(tmp_path / "x", data=tmp_path / "new")
    assert held(tmp_path / "new") == {}


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_backup_is_none_and_the_next_one_is_whole(data: Path, tmp_path: Path, sign: signal.Signals) -> None:
    (tmp_path / "backups").mkdir()
    with (data / "files" / "large").open("wb") as large:
        large.truncate(20 * 1024**3)
    argv = [sys.executable, "-m", "corelane", "backup", str(tmp_path / "backups" / "x"), "--data", str(data)]
    with subprocess.Popen(argv) as process:
        begun = eventually(lambda: list((tmp_path / "backups").glob(".x.*")))
        process.send_signal(sign)
    assert process.returncode != 0
    assert list((tmp_path / "backups").iterdir()) == (begun if sign == signal.SIGKILL else [])
    (data / "files" / "large").unlink()
    backup(tmp_path / "backups" / "x", data=data)
    restore(tmp_path / "backups" / "x", data=tmp_path / "new")


@contextmanager
def server_on(folder: Path) -> Iterator[tuple[str, Any]]:
    """Run a Redis as `serve` does."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with subprocess.Popen(server_argv(find_server(), folder, port), stdout=subprocess.DEVNULL) as process:
        try:
            with client_of(url := f"redis://127.0.0.1:{port}/0") as client:
                eventually(client.ping)
                yield url, client
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
    (files := data / "files").mkdir(parents=True)
    with server_on(data / "redis") as (url, client):
        client.config_set("auto-aof-rewrite-min-size", "1kb")  # it rewrites its own file at the same time
        client.config_set("auto-aof-rewrite-percentage", "1")
        writer = threading.Thread(target=churn, args=(client, files, is_over))
        writer.start()
        try:
            for number in range(5):
                eventually(lambda: len(client.smembers("named")) >= 20)
                with captured(Place(data, files, redis_url=url), runs=True) as entries:
                    write_archive(tmp_path / f"{number}.tar", entries, {})
        finally:
            is_over.set()
            writer.join()
        assert not (files / ASIDE).exists()
        assert not (data / "redis" / SNAPSHOT).exists()
    for number in range(5):
        unpack(tmp_path / f"{number}.tar", tmp_path / str(number))
        with server_on(tmp_path / str(number) / "redis") as (_, client):
            named = client.smembers("named")
            client.set("written", "after the restore")
        assert len(named) >= 20
        assert {name: (tmp_path / str(number) / "files" / name).read_text() for name in named} == {n: n for n in named}
    with server_on(tmp_path / "4" / "redis") as (_, client):
        assert client.get("written") is not None
        assert client.smembers("named") == named


def test_snapshot_that_redis_cannot_write_is_told_and_no_backup_is_made(tmp_path: Path) -> None:
    with server_on((data := tmp_path / "data") / "redis") as (url, client):
        (data / "redis" / "dump.rdb").mkdir()
        noted = {"redis": url, "files_dir": str(data / "files")}
        (data / PARTS_FILE).write_text(json.dumps(noted | {"redis_password_file": str(tmp_path / "password")}))
        (tmp_path / "password").write_text("secret\n")
        with only_one(data), pytest.raises(SetupError, match=r"could not write its snapshot into .*GiB are free"):
            backup(tmp_path / "x", data=data)
        client.shutdown(nosave=True)
        with only_one(data), pytest.raises(SetupError, match="Redis took no snapshot"):
            backup(tmp_path / "x", data=data)
    assert not (tmp_path / "x").exists()
    assert not (data / "files" / ASIDE).exists()
