"""Users of Redis: the lists of commands and keys follow the code, and what a user does not need is refused."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.cli.redis_users import (
    SERVICE,
    WORKER,
    keep_password,
    operator_url,
    read_password,
    with_user,
    write_users,
)
from corelane.errors import SetupError, StoreUnavailable
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.acl import LOADING, SENT, keys_of_workers, library_commands
from corelane.store.link.blocking import Link
from corelane.store.link.library import read_code
from deploy.redis.users import PATH, renewed
from tests.tools.redis import filled_users
from tests.tools.snippets import ROOT

#: Replies to `COMMAND INFO` have the names of subcommands; these are the commands that our code calls by two words.
CONTAINERS = ("function",)

FLOWER, WATCHERS = "corelane-flower", ("corelane-metrics", "corelane-replica", "corelane-sentinel")

#: What no user of the service may send, whatever the keys.
DANGEROUS = (
    *(("flushall",), ("flushdb",), ("config", "set", "dir", "/tmp"), ("config", "get", "*"), ("keys", "*")),
    *(("debug", "sleep", "1"), ("eval", "return 1", "0"), ("shutdown",), ("monitor",), ("acl", "list"), ("save",)),
    *(("replicaof", "h", "1"), ("module", "list"), ("client", "kill", "h:1"), ("client", "list"), ("scan", "0")),
    *(("migrate", "h", "1", "cl:fence", "0", "1"), ("swapdb", "0", "1"), ("function", "flush"), ("function", "dump")),
    *(
        ("randomkey",),
        ("client", "tracking", "on", "bcast"),
        ("bgrewriteaof",),
        ("slowlog", "get"),
        ("script", "flush"),
    ),
)


def sent_by_python() -> set[str]:
    """Return the commands in the code that talks to Redis: texts in capitals that begin a tuple or a call."""
    found = set()
    own = ROOT / "corelane"
    # Backends talk to devices alone.
    plugins = [path for path in (own / "plugins").rglob("*.py") if "backends" not in path.parts]
    for path in [*(own / "store").rglob("*.py"), *plugins, *(own / "cli").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.elts if isinstance(node, ast.Tuple) else node.args if isinstance(node, ast.Call) else []
            if parts and (name := capitals(parts[0])) and name not in NO_COMMANDS:
                sub = capitals(parts[1]) if name in CONTAINERS and len(parts) > 1 else None
                found.add(f"{name}|{sub}" if sub else name)
    return found


#: Texts in capitals that are no commands.
NO_COMMANDS = {"oom", "noperm", "ece", "readonly", "files", "artifacts", "post", "cpu"}


def capitals(node: ast.expr) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value.lower() if is_text and re.fullmatch("[A-Z]{3,}", node.value) else None  # type: ignore[attr-defined]


@pytest.fixture
def users(raw: redis.Redis) -> Iterator[redis.Redis]:
    """Yield a client that may do all, of a Redis with the users of ``deploy/redis``, under names of their own."""
    for line in filled_users("password").splitlines():
        _, name, *words = re.findall(r"\([^)]*\)|\S+", line)
        raw.execute_command("ACL", "SETUSER", f"{name}-here", *words)
    yield raw
    raw.execute_command("ACL", "DELUSER", *(f"{name}-here" for name in (SERVICE, WORKER, FLOWER, *WATCHERS)))


def may(users: redis.Redis, name: str, *command: str) -> bool:
    return str(users.execute_command("ACL", "DRYRUN", f"{name}-here", *command)) == "OK"


def test_file_of_users_has_the_rights_that_the_code_needs() -> None:
    text = PATH.read_text()
    assert text == renewed(text.splitlines()), "run `python -m deploy.redis.users`"


def test_list_of_commands_is_what_the_code_sends() -> None:
    sent = sent_by_python() - {"subscribe", "ping"}  # these two are written as text
    assert sent == {*SENT, *LOADING} - {"subscribe", "ping"}


def test_every_command_of_the_library_is_read_from_its_text() -> None:
    firsts = {first.strip() for first in re.findall(r"\bcall\(([^,()]*)", read_code())}
    unread = {first for first in firsts if not re.search("'[A-Z]+'", first)}
    assert unread == {"push", "unpack"}, "the values of `push` are LPUSH and RPUSH; `write` gets commands of Python"
    assert {"lpush", "rpush", "hset", "zrange", "publish", "hincrbyfloat"} <= library_commands()


@pytest.mark.parametrize("name", [SERVICE, WORKER, FLOWER, "corelane-metrics"])
def test_dangerous_commands_are_refused(users: redis.Redis, name: str) -> None:
    allowed = {("client", "list"), ("slowlog", "get")} if name == "corelane-metrics" else set()
    assert {command for command in DANGEROUS if may(users, name, *command)} == allowed


def test_service_uses_its_own_keys_and_no_others(users: redis.Redis) -> None:
    for key in keys.all_keys().values():
        if key.kind != "channel":
            assert may(users, SERVICE, "del", key), key
    for other in ("other", "cx:job", "session:1", "unacked"):
        assert not may(users, SERVICE, "get", other)
        assert not may(users, SERVICE, "set", other, "1")
    assert may(users, SERVICE, "publish", keys.done("x"), "")
    assert not may(users, SERVICE, "publish", "news", "")
    assert may(users, SERVICE, "rename", keys.rates("a"), keys.rates("b"))
    assert not may(users, SERVICE, "rename", keys.job("a"), keys.job("b"))
    assert not may(users, SERVICE, "subscribe", "__keyspace@0__:x")


def test_worker_reaches_all_keys_but_those_of_callers(users: redis.Redis) -> None:
    for key in keys.all_keys().values():
        if key.kind != "channel":
            filled = key.replace("%s", "a")
            assert may(users, WORKER, "del", filled) == (not key.secret), key
    assert not may(users, WORKER, "function", "load", "replace", "x")
    assert not may(users, WORKER, "set", "cl:rates:1", "1")
    secret = [key for key in keys.all_keys().values() if key.secret]
    for pattern in keys_of_workers():
        assert not any(fnmatchcase(key.replace("%s", "a"), pattern.replace("[^", "[!")) for key in secret)


def test_flower_sees_the_queues_and_nothing_of_the_jobs(users: redis.Redis) -> None:
    assert may(users, FLOWER, "llen", "core.host.0")
    assert not may(users, FLOWER, "lpush", "core.host.0", "{}")
    assert not may(users, FLOWER, "smembers", "cl:open:1")
    assert not may(users, FLOWER, "fcall", "corelane_claim", "0")
    assert not may(users, FLOWER, "subscribe", keys.done("x"))


@pytest.mark.parametrize("name", WATCHERS)
def test_users_that_watch_or_copy_touch_no_key(users: redis.Redis, name: str) -> None:
    for command in (("get", "cl:fence"), ("set", "cl:fence", "1"), ("fcall", "x", "0"), ("function", "load", "x")):
        assert not may(users, name, *command)
    assert may(users, name, "ping")


def test_function_does_what_its_caller_may_do(users: redis.Redis, settings: Settings) -> None:
    at = settings.redis_url.rpartition("@")[2].removeprefix("redis://")
    worker = Link(f"redis://corelane-worker-here:password@{at}")
    users.execute_command("FUNCTION", "FLUSH")
    with pytest.raises(StoreUnavailable, match="start an API or keeper"):
        worker.run("admit", model="nothing", owner="public")
    Link(f"redis://corelane-here:password@{at}").run("admit", model="nothing", owner="public")
    assert worker.run("admit", model="nothing", owner="public")[0] == []
    with pytest.raises(redis.exceptions.ResponseError, match="permission"):
        worker("HSET", keys.api_key("digest"), "id", "1")
    worker.close()


def corelane(*arguments: str) -> Any:
    return CliRunner().invoke(make_cli(), arguments)


def test_operators_lines_stay_in_the_file_of_serve(tmp_path: Path) -> None:
    (tmp_path / "users.acl").write_text("user default off\nuser me on >x +ping\nuser corelane on\n")
    path = write_users(tmp_path, "operator", "service", "worker")
    lines = path.read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["default", "corelane", "corelane-worker", "me"]
    assert "operator" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_password_is_kept_and_stands_in_the_url(tmp_path: Path) -> None:
    path = tmp_path / "redis-password"
    password = keep_password(path)
    assert keep_password(path) == password
    assert operator_url({"redis": "redis://127.0.0.1:7/0", "redis_password_file": str(path)}) == (
        f"redis://default:{password}@127.0.0.1:7/0"
    )
    assert operator_url({"redis": "redis://127.0.0.1:7/0"}) == "redis://127.0.0.1:7/0"
    assert operator_url({}) is None
    assert with_user("redis://h:1/0", "a", "p@/:") == "redis://a:p%40%2F%3A@h:1/0"
    path.write_text("")
    with pytest.raises(SetupError, match="holds no password"):
        read_password(path)
    path.unlink()
    with pytest.raises(SetupError, match="cannot be read"):
        read_password(path)


def test_password_in_an_option_is_told_of_and_not_shown(tmp_path: Path) -> None:
    done = corelane("serve", "--redis", "redis://me:hunter2@127.0.0.1:1/0", "--data", str(tmp_path))
    assert "set CORELANE_REDIS_URL" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_all_keys_and_channels_begin_alike() -> None:
    assert all(key.startswith(keys.PREFIX) for key in keys.all_keys().values())
