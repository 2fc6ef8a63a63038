"""API keys: how they are made, kept, listed and revoked, and `corelane keys`."""

import fcntl
import json
import re
import time
from pathlib import Path

import orjson
import pytest
import redis
from typer.testing import CliRunner, Result

from corelane.cli.keys import FoundRedis, check_is_corelane, keys, running_redis
from corelane.domain.api_keys import KEY_FORM, Scope, key_digest
from corelane.domain.ids import cell_of
from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link


@pytest.fixture
def store(settings: Settings) -> ApiKeyStore:
    return ApiKeyStore(Link(settings.redis_url))


def run(*arguments: str, redis: str | None = None) -> Result:
    return CliRunner(env={"CORELANE_REDIS_URL": redis}).invoke(keys, arguments)


def test_key_names_the_service_whose_redis_it_is_in(store: ApiKeyStore, settings: Settings, raw: redis.Redis) -> None:
    """That of service `0` names none, as keys did before there were others."""
    assert re.fullmatch(r"clk_[\w-]{43}", store.create("a", [Scope.READ])[1])
    key, secret = store.create("b", [Scope.READ], cell="1")
    assert re.fullmatch(r"clk_1_[\w-]{43}", secret)
    assert cell_of(key.id) == "1"
    raw.set("cl:cell", "2")
    made = run("create", "--name", "c", redis=settings.redis_url).stdout.strip()
    assert made.startswith("clk_2_")
    assert "is revoked" in run("revoke", made, redis=settings.redis_url).stdout


def test_keys_are_listed_oldest_first_as_they_were_made(store: ApiKeyStore) -> None:
    first, _ = store.create("a", [Scope.SUBMIT, Scope.READ], owner="team")
    time.sleep(0.002)  # ids tell milliseconds apart
    second, _ = store.create("b", [Scope.ADMIN], expires_ms=1)
    assert store.list() == [first, second]
    assert first.owner == "team"
    assert second.state(time.time() * 1000) == "expired"


def test_revoking_is_for_good_and_may_be_repeated(store: ApiKeyStore, raw: redis.Redis) -> None:
    key, _ = store.create("a", [Scope.READ])
    before = raw.get("cl:keys:changed")
    revoked = store.revoke(key.id)
    assert revoked is not None
    assert revoked.state(0) == "revoked"
    assert store.revoke(key.id) == revoked
    assert raw.get("cl:keys:changed") != before
    assert store.revoke("key_unknown") is None


def test_command_prints_the_key_alone_and_once(settings: Settings, raw: redis.Redis) -> None:
    at = settings.redis_url
    made = run("create", "--name", "ci", "--scope", "submit", "--owner", "team-7", redis=at)
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert KEY_FORM.fullmatch(secret)
    assert "owner team-7" in made.stderr
    shown = run("list", "--json", redis=at)
    key = orjson.loads(shown.stdout)
    assert key | {"id": "", "created_at": ""} == {
        "id": "",
        "name": "ci",
        "owner": "team-7",
        "scopes": ["submit"],
        "share": 1.0,
        "state": "active",
        "created_at": "",
        "last_used_on": None,
        "expires_at": None,
        "revoked_at": None,
    }
    kept = str([raw.keys("*"), raw.hgetall("cl:keys"), raw.hgetall(f"cl:key:{key_digest(secret)}")])
    assert secret[4:] not in shown.stdout + kept


def test_command_makes_keys_that_submit_and_read_and_may_expire(settings: Settings) -> None:
    made = run("create", "--name", "a", "--expires-in-days", "2", "--json", redis=settings.redis_url)
    key = orjson.loads(made.stdout)
    assert key["scopes"] == ["submit", "read"]
    assert KEY_FORM.fullmatch(key["key"])
    assert key["expires_at"] > key["created_at"]


def test_command_revokes_by_id_or_by_the_leaked_key_itself(settings: Settings) -> None:
    at = settings.redis_url
    first = orjson.loads(run("create", "--name", "a", "--json", redis=at).stdout)
    second = orjson.loads(run("create", "--name", "b", "--json", redis=at).stdout)
    assert "is revoked" in run("revoke", first["id"], redis=at).stdout
    assert orjson.loads(run("revoke", second["key"], "--json", redis=at).stdout)["state"] == "revoked"
    assert "key_" not in run("list", redis=at).stdout
    shown = run("list", "--all", redis=at).stdout
    assert first["id"] in shown
    assert second["id"] in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", "--name", ""), "--name takes 1 to 100 printable characters"),
        (("create", "--name", "a", "--owner", "a:b"), "--owner takes 1 to 64 letters, digits"),
        (("create", "--name", "a", "--share", "0"), "--share takes a number from 0.1 to 100"),
        (("create", "--name", "a", "--share", "nan"), "--share takes a number from 0.1 to 100"),
        (("revoke", "job_1"), "neither a key's id (key_…) nor a key (clk_…)"),
        (("revoke", "key_000000000000000000000000000"), "there is no key"),
        (("revoke", "clk_" + 43 * "x"), "there is no key"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(arguments: tuple[str, ...], sentence: str, settings: Settings) -> None:
    done = run(*arguments, redis=settings.redis_url)
    assert done.exit_code == 1
    assert sentence in done.stderr


def test_key_is_made_in_the_redis_of_the_service_on_the_data_folder(
    store: ApiKeyStore, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts.json").write_text(json.dumps({"is_ready": True, "redis": settings.redis_url}))
    (tmp_path / "serve.lock").touch()
    monkeypatch.chdir(tmp_path)
    assert running_redis(tmp_path) is None  # left behind by one that was killed
    with (tmp_path / "serve.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("create", "--name", "a", "--data", str(tmp_path)).exit_code == 0
        (tmp_path / "parts.json").write_text('{"redis": "redis://***@elsewhere/0"}')
        done = run("create", "--name", "b", "--data", str(tmp_path))
        assert (done.exit_code, "set CORELANE_REDIS_URL" in done.stderr) == (1, True)
    assert [key.name for key in store.list()] == ["a"]


def test_redis_that_no_corelane_uses_is_told_of_or_refused(settings: Settings, raw: redis.Redis) -> None:
    at = settings.redis_url
    with pytest.raises(SetupError, match="set CORELANE_REDIS_URL to the service's, or name its data folder"):
        check_is_corelane(FoundRedis(settings.redis_url, is_named=False, link=Link(settings.redis_url), cell="0"))
    assert raw.keys("*") == []
    assert "no Corelane has used the Redis at" in run("create", "--name", "a", redis=at).stderr
    assert "no Corelane has used" not in run("create", "--name", "b", redis=at).stderr


@pytest.mark.parametrize(
    ("auth", "host", "required"),
    [
        ("auto", "127.0.0.1", False),
        ("auto", "localhost", False),
        ("auto", "::1", False),
        ("auto", "0.0.0.0", True),
        ("auto", "::", True),
        ("auto", "api.internal", True),
        ("off", "0.0.0.0", False),
        ("required", "127.0.0.1", True),
    ],
)
def test_keys_are_required_where_others_can_reach_the_api(auth: str, host: str, required: bool) -> None:
    assert Settings.model_validate({"auth": auth, "host": host}).requires_keys is required


def test_ids_of_keys_are_whole_in_a_pipe(store: ApiKeyStore, settings: Settings) -> None:
    made = [store.create(f"key number {n}", [Scope.SUBMIT, Scope.READ])[0].id for n in range(2)]
    done = CliRunner(env={"COLUMNS": "80", "CORELANE_REDIS_URL": settings.redis_url}).invoke(keys, ["list"])
    lines = done.stdout.splitlines()
    assert sorted(line.split()[0] for line in lines[1:]) == sorted(made)
    assert all("submit, read" in line for line in lines[1:])
