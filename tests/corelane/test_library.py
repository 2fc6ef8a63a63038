"""The library of functions and the keys: loaded where missing, beside other versions, on data of a known format."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.store import keys, schema
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.link.library import PREFIX, make_library, read_code, read_library
from corelane.store.link.link import call
from corelane.store.schema import require_schema
from corelane.store.upkeep import Upkeep
from tests.conftest import free_port

ROOT = Path(__file__).parents[2]

#: What a function of the library answers where Redis is empty.
ASK = call("admit", model="nothing", owner="public")


@pytest.fixture
def link(settings: Settings, raw: redis.Redis) -> Link:
    raw.function_flush("SYNC")
    return Link(settings.redis_url)


def libraries(raw: redis.Redis) -> set[str]:
    return {each[1] for each in raw.function_list(f"{PREFIX}*")}


def test_keys_are_built_in_one_module_only() -> None:
    files = [path for room in ("corelane", "api", "workers", "compile") for path in (ROOT / room).rglob("*")]
    sources = [path for path in files if path.suffix in (".py", ".lua") and path.name != "keys.py"]
    literal = re.compile(r"""["'`]cl:""")
    strays = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if literal.search(line.replace("``", ""))
    ]
    assert strays == []


def test_lua_builds_the_keys_that_python_builds(raw: redis.Redis) -> None:
    names = ["x@1", "2", "o"]
    for name, key in keys.all_keys().items():
        given = names[: key.count("%s")]
        code = f"local keys = {keys.as_lua()} return keys.{name}" + ("(unpack(ARGV))" if given else "")
        assert raw.eval(code, 0, *given) == (key(*given) if given else key)


def test_lua_asks_only_for_keys_that_there_are() -> None:
    assert set(re.findall(r"\bkeys\.(\w+)", read_code())) <= set(keys.all_keys())


def test_a_call_after_the_library_was_lost_takes_effect_once(link: Link, raw: redis.Redis) -> None:
    raw.set("cl:counted", 0)
    note = call("note_round", name="sweeps")
    replies = link.many([("INCR", "cl:counted"), note, ("INCR", "cl:counted"), ASK])
    assert (replies[0], replies[2], replies[3][0]) == (1, 2, [])
    assert raw.hexists(keys.ROUNDS, "sweeps")


def test_named_text_and_payloads_arrive_as_they_were_given(link: Link) -> None:
    version, summary = 'é"\\\x00\n\u2028', b"\xff\x00\r\n"
    link.run("announce", summary, version=version, aliases=["a", b"b"])
    assert link("HGETALL", keys.MODELS) == [version.encode(), summary]
    assert link("HMGET", keys.ALIASES, "a", "b") == [version.encode()] * 2


def test_a_keeper_drops_other_versions_which_come_back_if_they_are_still_used(
    settings: Settings, link: Link, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = make_library(read_code() + "-- another version\n")
    assert former.name != read_library().name
    for library in (former, make_library("redis.register_function('not_ours', function() return 1 end)")):
        raw.function_load(library.text)
    link(*ASK)
    Announcer(settings, "a/0").beat({"state": "idle", "library": former.name}, [], [])
    Upkeep(settings, "").drop_libraries()
    assert libraries(raw) == {read_library().name, former.name}, "a core may not be allowed to load it again"
    raw.delete(keys.core("a/0"))
    Upkeep(settings, "").drop_libraries()
    assert libraries(raw) == {read_library().name}
    with monkeypatch.context() as patch:
        patch.setattr("corelane.store.link.link.read_library", lambda: former)
        assert link.run("admit", model="nothing", owner="public")[0] == []
    assert libraries(raw) == {read_library().name, former.name}


CLAIM: dict[str, Any] = {
    "core": "a/0", "room": 1, "spare": 1, "met": [], "refs": 1, "document": 1, "laden": False, "lease_ms": 1000,
    "linger": False, "idle": True, "ttl": 60, "versions": ["tiny@1"],
}  # fmt: skip


def test_functions_that_end_or_free_something_run_where_redis_is_full(link: Link, raw: redis.Redis) -> None:
    link(*ASK)
    raw.config_set("maxmemory", 1)
    try:
        assert link.run("cancel", job="job_none", ttl=60) == -1
        assert link.run("commit", lease="a/0#1", core="a/0", ttl=60, slices=[], spent={}) == [0, 0]
        assert link.run("claim", **CLAIM) == []
        assert link.run("lease", key="cl:lease", holder="a", ttl_ms=1000) > 0
        assert link.run("write", commands=[["SET", "cl:x", 1, "NX"]]) == [b"OK"]
        assert link(*ASK)[0] == []
    finally:
        raw.config_set("maxmemory", 0)


@pytest.mark.parametrize("found", [None, str(schema.FORMAT)])
def test_data_of_a_known_format_are_accepted(link: Link, raw: redis.Redis, found: str | None) -> None:
    if found is not None:
        raw.set(keys.SCHEMA, found)
    require_schema(link)
    assert raw.get(keys.SCHEMA) == str(schema.FORMAT)


@pytest.mark.parametrize("found", [str(schema.FORMAT - 1), str(schema.FORMAT + 1), "surprise"])
def test_data_of_another_format_are_refused_and_left_alone(link: Link, raw: redis.Redis, found: str) -> None:
    raw.set(keys.SCHEMA, found)
    for meet in (lambda: require_schema(link), lambda: link.run("note_round", name="sweeps")):
        with pytest.raises(SetupError, match=f"format {found}.*an empty Redis"):
            meet()
    assert raw.get(keys.SCHEMA) == found
    assert not raw.exists(keys.ROUNDS)


def test_data_stay_those_of_the_service_that_made_them(link: Link, raw: redis.Redis) -> None:
    require_schema(link, "1")
    assert raw.get(keys.CELL) == "1"
    with pytest.raises(SetupError, match="is that of service 1, and CORELANE_CELL is 2"):
        require_schema(link, "2")


def test_a_redis_that_is_away_does_not_stop_a_start() -> None:
    require_schema(Link("redis://127.0.0.1:1/0"))


@pytest.mark.parametrize("role", ["api", "keeper"])
def test_no_role_starts_on_data_of_another_format(raw: redis.Redis, settings: Settings, role: str) -> None:
    raw.set(keys.SCHEMA, schema.FORMAT + 1)
    more = ["--port", str(free_port())] if role == "api" else []
    command = [sys.executable, "-m", "corelane", role, *more]
    done = subprocess.run(
        command, env=settings.environment(core=None), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "an empty Redis" in done.stderr
    assert "Traceback" not in done.stderr
