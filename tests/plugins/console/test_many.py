"""Many cores and models: what is alike stands once, each core has one line, and aliases are moved by a form."""

import orjson
import pytest
from fastapi.testclient import TestClient

from corelane.store.fleet import Announcer
from tests.corelane.store_bench import VERSION, Bench, announce
from tests.plugins.console.conftest import SUMMARY, text_of
from tests.plugins.console.test_tasks import BEAT


@pytest.mark.parametrize(("path", "cores"), [("", "a/0 and 19 more"), ("models", "on 20 cores")])
def test_what_many_cores_have_alike_stands_once(console: TestClient, bench: Bench, path: str, cores: str) -> None:
    failed = {"version": "bad@1", "state": "failed", "reason": "the file is damaged"}
    models = orjson.dumps([{"version": VERSION, "state": "ready"}, failed]).decode()
    for index in range(20):
        beat = BEAT | {"models": models, "state": "busy" if index == 7 else "idle"}
        Announcer(bench.settings, f"a/{index}").beat(beat, [VERSION], [], None)
    page = text_of(console.get(f"/console/{path}").text)
    assert (page.count("the file is damaged"), cores in page) == (1, True), page
    assert path or ("20 cores, 19 idle, 1 busy" in page and page.count("1 ready, 1 failed") == 20)


def test_alias_has_sliders_once_it_has_several_versions(console: TestClient, bench: Bench) -> None:
    announce(bench.settings, "a/0", "tiny@2", [], SUMMARY)
    Announcer(bench.settings, "a/0").beat(BEAT, [VERSION, "tiny@2"], [], None)
    assert 'type="range"' not in console.get("/console/models").text
    for share, weights in (("20", {"tiny@1": 80, "tiny@2": 20}), ("100", {"tiny@2": 1})):
        console.post("/console/aliases/move", data={"alias": "default", "version": "tiny@2", "share": share})
        assert console.get("/v1/aliases").json()["data"][0]["weights"] == weights
        assert console.get("/console/models").text.count('type="range"') == (2 if len(weights) > 1 else 0)
