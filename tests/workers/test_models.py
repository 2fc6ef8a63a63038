"""The models of one core, on a real Redis: what is wanted comes, what is not leaves, what does not load says why."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corelane.domain.placement import ALL_CORES, UNPLACED, displace, place, reload
from corelane.engine.null import NullRunner
from corelane.errors import ArtifactRefused, CoreBusy, CoreLost, RuntimeLost
from corelane.log import Outage, get_logger
from corelane.metrics.recorder import Recorder
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.plans import Plans
from workers.models.runners import Loader
from workers.models.serving import CoreModels

CORE = "test/0"

#: The loader's thread has a low priority: where the machine is busy, and much is in memory to collect garbage of, what
#: takes milliseconds takes many seconds.
LONG_S = 120


class Shelf(Loader):
    """Null runners of certain versions; one of them says that it weighs much, and gives nothing back.

    ``manifest`` is what lies there now, ``open`` whether what is asked for comes at once.
    """

    def __init__(self) -> None:
        super().__init__("null", Path())
        self.manifest = "first"
        self.open = threading.Event()
        self.open.set()
        self.began: list[str] = []

    def resolve(self, name: str, known: str | None = None) -> str:
        return known or f"{name}@1"

    def load(self, version: str, manifest: str = "", *, renew: bool = False) -> NullRunner:
        if version.endswith("@broken"):
            raise ArtifactRefused("its digest is not the manifest's")
        if version.endswith("@bug"):
            raise ZeroDivisionError("a bug")
        if version.endswith("@timeout"):
            raise RuntimeLost("status 5")
        if version.endswith("@busy"):
            raise CoreBusy("another process holds the core")
        self.began.append(version)
        assert self.open.wait(LONG_S)
        if manifest not in ("", self.manifest):
            raise ArtifactRefused("not the one asked for")
        return HeavyRunner(version) if version.endswith("@heavy") else ShelfRunner(version, self.manifest)


class ShelfRunner(NullRunner):
    """One that knows its manifest, and whether it was closed."""

    def __init__(self, version: str, manifest: str) -> None:
        super().__init__(version)
        self.manifest, self.is_closed = manifest, False
        self.summary = dict(self.summary) | {"manifest_sha256": manifest}

    def close(self) -> None:
        self.is_closed = True
        super().close()


class HeavyRunner(NullRunner):
    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.summary = dict(self.summary) | {"bytes": 10**9}


class World:
    """A core's models, and the plan they follow."""

    def __init__(self, settings: Settings, bell: str, core: str = CORE) -> None:
        self.core = core
        self.settings, self.bell = settings.model_copy(update={"heartbeat_s": 0.05, "lease_s": 1.5}), bell
        self.link = Link(settings.redis_url)
        self.now = 0
        self.shelf = Shelf()
        self.lost: list[type[CoreLost | RuntimeLost]] = []
        self.models = self.start()

    def start(self) -> CoreModels:
        settings, bell, lost = self.settings, self.bell, self.lost
        self.models = CoreModels(
            settings,
            self.shelf,
            lambda: Plans(settings, self.core, bell),
            self.core,
            lambda error: lost.append(type(error)),
            Outage(get_logger(__name__), "store"),
            Recorder(),
        )
        self.models.start()
        return self.models

    def want(self, version: str) -> None:
        self.now += 1
        self.link("HSET", "cl:placements", version, place(UNPLACED, ALL_CORES, self.now).model_dump_json())

    def close(self) -> None:
        self.models.close()
        self.link.close()

    def renew(self, version: str, core: str = ALL_CORES, manifest: str | None = None) -> None:
        self.now += 1
        placement = reload(UNPLACED, core, self.now, manifest=manifest)
        self.link("HSET", "cl:placements", version, placement.model_dump_json())

    def manifest(self, version: str) -> str:
        runner = self.models.table.runners[version]
        assert isinstance(runner, ShelfRunner)
        return runner.manifest

    def drop(self, version: str) -> None:
        self.now += 1
        self.link("HSET", "cl:placements", version, displace(UNPLACED, ALL_CORES, self.now).model_dump_json())

    def until(self, condition: Callable[[], bool], busy: str = "") -> None:
        """As heartbeats and drains come and go."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline
            self.step(busy)
            time.sleep(0.01)

    def step(self, busy: str = "") -> None:
        self.models.follow(str(self.now))
        _, retired = self.models.table.swap_runners(lambda version: version == busy)
        self.models.loads.unload(retired)

    def states(self) -> dict[str, str]:
        return {model["version"]: model["state"] for model in self.models.describe()}

    def reason(self, version: str) -> str:
        return next(str(model["reason"]) for model in self.models.describe() if model["version"] == version)


@pytest.fixture
def world(settings: Settings, bell: str) -> Iterator[World]:
    world = World(settings, bell)
    yield world
    world.close()


@pytest.fixture
def other(settings: Settings, bell: str) -> Iterator[Plans]:
    """Another core of the host, which keeps what it has."""
    plans = Plans(settings.model_copy(update={"lease_s": 600}), "test/1", bell)
    yield plans
    plans.close()


def test_model_of_the_settings_is_loaded_and_known_by_its_names(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    assert (
        world.link("HGET", "cl:aliases", "default") == world.link("HGET", "cl:aliases", "qa-minilm") == b"qa-minilm@1"
    )
    assert list(world.models.table.runners) == world.models.table.claimable() == ["qa-minilm@1"]


def test_version_wanted_later_comes_and_one_not_wanted_leaves_after_its_batch(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.want("qa-minilm@2")
    world.until(lambda: world.states().get("qa-minilm@2") == "ready")
    world.drop("qa-minilm@1")
    world.until(lambda: world.states()["qa-minilm@1"] == "leaving", busy="qa-minilm@1")
    assert world.models.table.claimable() == ["qa-minilm@2"]
    assert "qa-minilm@1" in world.models.table.runners
    world.until(lambda: world.states() == {"qa-minilm@2": "ready"})
    assert list(world.models.table.runners) == ["qa-minilm@2"]
    assert not world.models.loads.must_restart


def test_model_that_does_not_load_says_why_and_others_go_on(world: World) -> None:
    world.want("qa@broken")
    world.want("qa@bug")
    world.want("qa@2")
    expected = {"qa-minilm@1": "ready", "qa@2": "ready", "qa@broken": "failed", "qa@bug": "failed"}
    world.until(lambda: world.states() == expected)
    assert world.reason("qa@broken") == "artifact_refused: its digest is not the manifest's"
    assert "ZeroDivisionError" in world.reason("qa@bug")
    world.until(lambda: not world.link("EXISTS", f"cl:loading:{CORE}"))


def test_models_that_jobs_wait_for_are_loaded_first(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.shelf.open.clear()
    for version in ("a@1", "b@1", "c@1", "d@1"):
        world.want(version)
    world.until(lambda: world.states().get("a@1") == "loading")
    world.link("HSET", "cl:jobs", "d@1", 1)
    began = world.shelf.began
    world.shelf.open.set()
    world.until(lambda: set(world.states().values()) == {"ready"})
    assert began == ["qa-minilm@1", "a@1", "d@1", "b@1", "c@1"]


def test_model_whose_load_keeps_ending_the_process_is_given_up_until_asked_for_again(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.want("qa@2")
    world.link("HSET", f"cl:loading:{CORE}", f"qa@2#{world.now}", 2)
    world.until(lambda: world.states().get("qa@2") == "failed")
    assert "ended the process 2 times" in world.reason("qa@2")
    world.want("qa@2")
    world.until(lambda: world.states().get("qa@2") == "ready")


def test_accelerator_lost_while_a_model_loads_is_passed_on_and_counts_against_that_load(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.want("qa@timeout")
    world.until(lambda: world.lost == [RuntimeLost])
    assert world.states() == {"qa-minilm@1": "ready", "qa@timeout": "loading"}
    assert world.link("HGETALL", f"cl:loading:{CORE}") == [f"qa@timeout#{world.now}".encode(), b"1"]


def test_core_that_another_process_holds_does_not_count_against_a_model(world: World) -> None:
    world.want("qa@busy")
    world.until(lambda: world.lost == [CoreBusy])
    world.until(lambda: not world.link("EXISTS", f"cl:loading:{CORE}"))


def test_memory_that_is_not_given_back_is_noticed(world: World) -> None:
    world.want("qa@heavy")
    world.until(lambda: world.states().get("qa@heavy") == "ready")
    world.drop("qa@heavy")
    world.until(lambda: "qa@heavy" not in world.states())
    assert world.models.loads.must_restart


def test_restarted_core_holds_what_is_wanted_and_what_its_settings_meant_before(world: World) -> None:
    world.want("qa@2")
    world.until(lambda: world.states() == {"qa-minilm@1": "ready", "qa@2": "ready"})
    world.link("HSET", "cl:named", "qa-minilm", "qa-minilm@0")
    world.models.close()
    world.start()
    world.until(lambda: world.states() == {"qa-minilm@0": "ready", "qa@2": "ready"})


def test_version_is_loaded_anew_beside_what_serves_and_taken_up_between_batches(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    before = world.models.table.runners["qa-minilm@1"]
    assert isinstance(before, ShelfRunner)
    world.shelf.manifest = "second"
    world.shelf.open.clear()
    world.renew("qa-minilm@1")
    world.until(lambda: world.states() == {"qa-minilm@1": "reloading"})
    assert world.models.table.claimable() == ["qa-minilm@1"]
    world.shelf.open.set()
    world.until(lambda: world.states() == {"qa-minilm@1": "reloaded"}, busy="qa-minilm@1")
    assert (world.models.table.claimable(), world.models.table.served()) == ([], ["qa-minilm@1"])
    assert world.models.table.runners["qa-minilm@1"] is before
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"} and before.is_closed)
    assert world.manifest("qa-minilm@1") == world.models.describe()[0]["manifest_sha256"] == "second"
    assert not world.models.loads.must_restart


def test_version_that_does_not_load_anew_goes_on_as_it_was_and_says_why(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.renew("qa-minilm@1", manifest="second")
    world.until(lambda: bool(world.reason("qa-minilm@1") == "artifact_refused: not the one asked for"))
    assert (world.states(), world.manifest("qa-minilm@1")) == ({"qa-minilm@1": "ready"}, "first")
    world.shelf.manifest = "second"
    world.renew("qa-minilm@1", manifest="second")
    world.until(lambda: world.manifest("qa-minilm@1") == "second")
    world.until(lambda: world.models.describe()[0]["reason"] is None)


def test_version_wanted_again_while_it_leaves_comes_back(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.shelf.open.clear()
    world.want("qa@2")
    world.until(lambda: world.states().get("qa@2") == "loading")
    world.drop("qa-minilm@1")
    world.until(lambda: world.states()["qa-minilm@1"] == "leaving")
    world.want("qa-minilm@1")
    world.models.follow(str(world.now))
    world.shelf.open.set()
    world.until(lambda: world.states() == {"qa-minilm@1": "ready", "qa@2": "ready"})
