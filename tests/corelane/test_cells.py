"""Cells: their settings, where owners are placed, and the keys and commands of a service that has several."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis
from pydantic import ValidationError
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.cli.doctor import check_cells
from corelane.domain.api_keys import Scope
from corelane.domain.cells import CellMap, Home, least_loaded, rendezvous
from corelane.domain.ids import age_key, cell_of, is_job_id, new_job_id, on_cell
from corelane.errors import InvalidInput, StoreUnavailable
from corelane.settings import Settings
from corelane.settings.cells import read_cells
from corelane.store.cell_keys import CellKeys
from corelane.store.link.blocking import Link
from tests.redis_for_tests import admin_url

SENTINELS = "redis+sentinel://user:pw@a:26379,b:26379/main/0"


def test_an_id_names_its_cell_and_a_cursor_stands_at_the_same_time_in_another() -> None:
    job = new_job_id(5, "k")
    assert is_job_id(job)
    assert cell_of(job) == "k"
    assert cell_of(on_cell(job, "3")) == "3"
    assert age_key(on_cell(job, "3")) == age_key(job)
    assert cell_of(on_cell("nonsense", "3")) == "3"
    assert not is_job_id(on_cell("nonsense", "3"))


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("0=redis://a:1/0", {"0": "redis://a:1/0"}),
        ("0=redis://a:1/0,1=redis://b:1/0", {"0": "redis://a:1/0", "1": "redis://b:1/0"}),
        (f"0={SENTINELS}, z=rediss://b:1/0?ssl_ca_certs=/ca", {"0": SENTINELS, "z": "rediss://b:1/0?ssl_ca_certs=/ca"}),
        ("0=redis://a:1/0\n1=unix:///run/r.sock\n", {"0": "redis://a:1/0", "1": "unix:///run/r.sock"}),
    ],
)
def test_cells_are_read_whatever_their_urls_hold(text: str, cells: dict[str, str]) -> None:
    assert read_cells(text) == cells


@pytest.mark.parametrize(
    "text", ["redis://a:1/0", "i=redis://a:1/0", "0=redis://a:1/0,0=redis://b:1/0", "0=x", "", ","]
)
def test_a_list_of_cells_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Settings(cells=f"{text} ")


def test_settings_of_each_cell_differ_in_its_name_and_its_redis() -> None:
    alone = Settings(redis_url="redis://a:1/0")
    assert alone.of_cells() == {"0": alone}
    every = Settings(cells="1=redis://a:1/0,2=redis://b:1/0").of_cells()
    assert {name: (each.cell, each.redis_url) for name, each in every.items()} == {
        "1": ("1", "redis://a:1/0"),
        "2": ("2", "redis://b:1/0"),
    }


def test_owners_are_spread_evenly_and_a_new_cell_takes_its_share_alone() -> None:
    owners = [f"owner-{n}" for n in range(3000)]
    before = {owner: rendezvous(owner, "012") for owner in owners}
    assert all(900 < list(before.values()).count(cell) < 1100 for cell in "012")
    after = {owner: rendezvous(owner, "0123") for owner in owners}
    moved = [owner for owner in owners if before[owner] != after[owner]]
    assert {after[owner] for owner in moved} == {"3"}
    assert 650 < len(moved) < 850


def test_a_key_says_where_its_owner_is_at_home() -> None:
    cells = CellMap(("0", "1", "2"), frozenset("2"))
    assert cells.home_of_key("o", ("1", "2")) == Home("1", ("2",))
    assert cells.home_of_key("o", ()) == Home("0")
    assert cells.home_of_key("o", ("9",)).cell in "01"
    assert CellMap(("1", "2")).home_of_key("o", ()) == Home("1")
    assert all(cells.home_of_text(f"o{n}").cell != "2" for n in range(50))
    assert cells.home_of_text("o").earlier == ("2",)
    assert CellMap(("0",), frozenset("0")).open == ("0",)
    assert least_loaded({"0": 5, "1": 4}, {"0": 0.1, "1": 0.2}) == "1"
    assert least_loaded({"0": 5, "1": 4}, {"1": 60.0}) == "0"


@pytest.fixture
def two(settings: Settings, raw: redis.Redis) -> Iterator[Settings]:
    """Return settings of two cells: databases of one Redis."""
    other = settings.redis_url.removesuffix("/0") + "/1"
    text = f"0={settings.redis_url},1={other}"
    with closing(redis.Redis.from_url(admin_url(other))) as second:
        yield Settings(cells=text, data_dir=settings.data_dir)
        second.flushdb()


def run(settings: Settings, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    assert settings.cells is not None
    monkeypatch.setenv("CORELANE_CELLS", settings.cells.get_secret_value())
    return CliRunner().invoke(make_cli(), arguments)


def test_keys_are_made_moved_and_revoked_in_every_cell(two: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(two, monkeypatch, "keys", "create", "--name", "a", "--owner", "ann", "--cell", "1", "--json")
    key = json.loads(made.stdout)
    assert key["cells"] == ["1"]
    # The next owner goes where fewer are, and another key of the same owner where that is at home.
    assert json.loads(run(two, monkeypatch, "keys", "create", "--name", "b", "--json").stdout)["cells"] == ["0"]
    again = run(two, monkeypatch, "keys", "create", "--name", "c", "--owner", "ann", "--json")
    assert json.loads(again.stdout)["cells"] == ["1"]
    refused = run(two, monkeypatch, "keys", "create", "--name", "d", "--owner", "ann", "--cell", "0")
    assert "keys move" in refused.stderr
    assert "go to cell 0" in run(two, monkeypatch, "keys", "move", "ann", "--cell", "0").stdout
    links = {name: Link(each.redis_url) for name, each in two.of_cells().items()}
    for link in links.values():
        kept = {each.name: each.cells for each in CellKeys({"0": link}).list()}
        assert kept == {"a": ("0", "1"), "b": ("0",), "c": ("0", "1")}
    run(two, monkeypatch, "keys", "revoke", key["id"])
    assert all(CellKeys({"0": link}).list()[0].revoked_ms for link in links.values())
    shown = json.loads(run(two, monkeypatch, "cells", "--json").stdout.splitlines()[0])
    assert shown | {"redis": ""} == {
        "cell": "0",
        "state": "open",
        "redis": "",
        "problem": None,
        "owners": 2,
        "cores": 0,
        "open_jobs": 0,
        "waiting_tokens": 0,
        "backlog_s": 0.0,
    }


def test_keys_are_completed_in_a_new_cell(two: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Link(each.redis_url) for each in two.of_cells().values())
    made, _ = CellKeys({"0": first}).create("a", [Scope.READ])
    CellKeys({"0": first}).revoke(made.id)
    assert CellKeys({"0": first, "1": second}).differing() == 1
    assert run(two, monkeypatch, "keys", "sync").stdout == "1 keys and secrets written\n"
    assert run(two, monkeypatch, "keys", "sync").stdout == "every cell has every key and webhook secret\n"
    assert CellKeys({"1": second}).list() == CellKeys({"0": first}).list()


def test_a_cell_that_is_away_is_told_when_keys_change(settings: Settings, raw: redis.Redis) -> None:
    link = Link(settings.redis_url)
    made, _ = CellKeys({"0": link}).create("a", [Scope.READ])
    keys = CellKeys({"0": link, "1": Link("redis://127.0.0.1:1/0")})
    with pytest.raises(StoreUnavailable, match="cell 1 does not answer: nothing was changed"):
        keys.create("b", [Scope.READ])
    with pytest.raises(StoreUnavailable, match=r"revoked in cell 0 and not in cell 1.*keys sync"):
        keys.revoke(made.id)
    assert keys.list()[0].revoked_ms
    with pytest.raises(InvalidInput, match="no cell '7'"):
        CellKeys({"0": link}).move("o", "7")


def test_doctor_and_the_command_tell_of_cells_that_are_away_or_differ(
    two: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_cells(two).state == "ok"
    CellKeys({"0": Link(two.of_cells()["0"].redis_url)}).create("a", [Scope.READ])
    assert "keys sync" in check_cells(two).advice
    away = Settings(cells=f"0={two.of_cells()['0'].redis_url},1=redis://127.0.0.1:1/0", draining_cells="1")
    assert check_cells(away).state == "fail"
    shown = run(away, monkeypatch, "cells")
    assert shown.exit_code == 1
    assert "away: " in shown.stdout
