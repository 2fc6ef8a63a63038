"""The models of one core, on a real Redis: what is wanted comes, what is not leaves, what does not load says why."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corelane.engine.loading import Loader
from corelane.engine.null import NullRunner
from corelane.errors import ArtifactRefused, CoreBusy, CoreLost, RuntimeLost
from corelane.placement import ALL_CORES, UNPLACED, displace, place
from corelane.settings import Settings
from corelane.store.connections import Link
from corelane.store.plans import Plans
from workers.models import CoreModels

CORE = "test/0"

#: The loader's thread has a low priority: where the machine is busy, and much is in memory to collect garbage of, what
#: takes milliseconds takes many seconds.
LONG_S = 120


class Shelf(Loader):
    """Null runners of certain versions; one of them says that it weighs much, and gives nothing back."""

    def __init__(self) -> None:
        super().__init__("null", Path())

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
        return HeavyRunner(version) if version.endswith("@heavy") else NullRunner(version)


class HeavyRunner(NullRunner):
    @property
    def summary(self) -> dict[str, object]:
        return super().summary | {"bytes": 10**9}


class World:
    """A core's models, and the plan they follow."""

    def __init__(self, settings: Settings, bell: str) -> None:
        self.settings, self.bell = settings.model_copy(update={"heartbeat_s": 0.05}), bell
        self.link = Link(settings.redis_url)
        self.now = 0
        self.lost: list[type[CoreLost | RuntimeLost]] = []
        self.models = self.start()

    def start(self) -> CoreModels:
        settings, bell, lost = self.settings, self.bell, self.lost
        self.models = CoreModels(
            settings, Shelf(), lambda: Plans(settings, CORE, bell), CORE, lambda error: lost.append(type(error))
        )
        self.models.start()
        return self.models

    def want(self, version: str) -> None:
        self.now += 1
        self.link("HSET", "cl:placements", version, place(UNPLACED, ALL_CORES, self.now).model_dump_json())

    def drop(self, version: str) -> None:
        self.now += 1
        self.link("HSET", "cl:placements", version, displace(UNPLACED, ALL_CORES, self.now).model_dump_json())

    def until(self, condition: Callable[[], bool], busy: str = "") -> None:
        """As heartbeats and drains come and go."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline
            self.models.look(str(self.now))
            self.models.take_up(lambda version: version == busy)
            time.sleep(0.01)

    def states(self) -> dict[str, str]:
        return {model["version"]: model["state"] for model in self.models.describe()}

    def reason(self, version: str) -> str:
        return next(str(model["reason"]) for model in self.models.describe() if model["version"] == version)


@pytest.fixture
def world(settings: Settings, bell: str) -> Iterator[World]:
    world = World(settings, bell)
    yield world
    world.models.close()


def test_model_of_the_settings_is_loaded_and_known_by_its_names(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    assert (
        world.link("HGET", "cl:aliases", "default") == world.link("HGET", "cl:aliases", "qa-minilm") == b"qa-minilm@1"
    )
    assert list(world.models.runners) == world.models.claimable() == ["qa-minilm@1"]


def test_version_wanted_later_comes_and_one_not_wanted_leaves_after_its_batch(world: World) -> None:
    world.until(lambda: world.states() == {"qa-minilm@1": "ready"})
    world.want("qa-minilm@2")
    world.until(lambda: world.states().get("qa-minilm@2") == "ready")
    world.drop("qa-minilm@1")
    world.until(lambda: world.states()["qa-minilm@1"] == "leaving", busy="qa-minilm@1")
    assert world.models.claimable() == ["qa-minilm@2"]
    assert "qa-minilm@1" in world.models.runners
    world.until(lambda: world.states() == {"qa-minilm@2": "ready"})
    assert list(world.models.runners) == ["qa-minilm@2"]
    assert not world.models.must_restart


def test_model_that_does_not_load_says_why_and_others_go_on(world: World) -> None:
    world.want("qa@broken")
    world.want("qa@bug")
    world.want("qa@2")
    expected = {"qa-minilm@1": "ready", "qa@2": "ready", "qa@broken": "failed", "qa@bug": "failed"}
    world.until(lambda: world.states() == expected)
    assert world.reason("qa@broken") == "artifact_refused: its digest is not the manifest's"
    assert "ZeroDivisionError" in world.reason("qa@bug")
    assert not world.link("EXISTS", f"cl:loading:{CORE}")


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
    assert not world.link("EXISTS", f"cl:loading:{CORE}")


def test_memory_that_is_not_given_back_is_noticed(world: World) -> None:
    world.want("qa@heavy")
    world.until(lambda: world.states().get("qa@heavy") == "ready")
    world.drop("qa@heavy")
    world.until(lambda: "qa@heavy" not in world.states())
    assert world.models.must_restart


def test_restarted_core_holds_what_is_wanted_and_what_its_settings_meant_before(world: World) -> None:
    world.want("qa@2")
    world.until(lambda: world.states() == {"qa-minilm@1": "ready", "qa@2": "ready"})
    world.link("HSET", "cl:named", "qa-minilm", "qa-minilm@0")
    world.models.close()
    world.start()
    world.until(lambda: world.states() == {"qa-minilm@0": "ready", "qa@2": "ready"})
