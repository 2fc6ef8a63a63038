"""The best answer so far of what takes long: when it is looked at, and what it is."""

from collections.abc import Hashable

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import Options
from corelane.engine.batching.previews import LONG_WINDOWS, MOST_AT_ONCE, LongReads, SoFar
from corelane.engine.runner import Runner
from corelane.engine.text.tokenize import Query
from tests.fakes import FixedBackend


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def so_far(key: Hashable) -> SoFar:
    return SoFar(key, 1, 2, {})


def keys(looks: list[SoFar]) -> list[str]:
    return [each.key for each in looks]


def test_long_items_are_looked_at_once_a_second_and_short_ones_never(clock: Clock) -> None:
    reads = LongReads(clock)
    reads.add("long", LONG_WINDOWS)
    reads.add("short", LONG_WINDOWS - 1)
    assert reads.look(so_far) == []
    clock.now += 1
    assert keys(reads.look(so_far)) == ["long"]
    clock.now += 0.9
    assert reads.look(so_far) == []
    clock.now += 0.1
    assert keys(reads.look(so_far)) == ["long"]


def test_looking_takes_a_hundredth_of_the_time_at_most(clock: Clock) -> None:
    def slowly(key: Hashable) -> SoFar:
        clock.now += 0.05
        return so_far(key)

    reads = LongReads(clock)
    reads.add("a", 5000)
    clock.now += 1
    assert keys(reads.look(slowly)) == ["a"]
    clock.now += 4.9
    assert reads.look(slowly) == []
    clock.now += 0.1
    assert keys(reads.look(slowly)) == ["a"]


def test_few_are_looked_at_at_once_and_all_in_their_turn(clock: Clock) -> None:
    reads = LongReads(clock)
    names = [str(n) for n in range(3 * MOST_AT_ONCE)]
    for name in names:
        reads.add(name, 100)
    clock.now += 1
    looks = [key for _ in range(4) for key in keys(reads.look(so_far))]
    assert sorted(looks) == sorted(names)


def test_item_of_which_nothing_is_found_yet_is_looked_at_again_later(clock: Clock) -> None:
    reads = LongReads(clock)
    reads.add("a", 100)
    clock.now += 1
    assert reads.look(lambda _: None) == []
    assert reads.look(so_far) == []
    clock.now += 1
    assert keys(reads.look(so_far)) == ["a"]


def test_forgotten_item_is_not_looked_at(clock: Clock) -> None:
    reads = LongReads(clock)
    for name in "abc":
        reads.add(name, 100)
    reads.drop(["a", "unknown"])
    clock.now += 1
    assert keys(reads.look(so_far)) == ["b", "c"]
    reads.clear()
    clock.now += 10
    assert reads.look(so_far) == []


@pytest.fixture
def long_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.engine.batching.previews.LOOK_S", 0.0)
    monkeypatch.setattr("corelane.engine.batching.previews.MOST_SHARE", 1e9)


@pytest.mark.usefixtures("long_looks")
def test_best_answer_so_far_is_a_stretch_of_the_context_and_the_last_one_is_the_result(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    context = "Ada wrote the first program. The river was cold in 1843. Paris is a city of light! " * 30
    query = Query("who wrote", context, Options(no_answer=False, top_k=3, offsets=("utf16",)))
    runner.admit([("a", query)])
    seen: list[SoFar] = []
    answered = runner.step()
    while not answered:
        [look] = runner.look()
        seen.append(look)
        answered = runner.step()
    assert runner.look() == []
    [(_, result)] = answered
    assert len(seen) > 3
    assert [look.windows_done for look in seen] == sorted({look.windows_done for look in seen})
    assert {look.windows_total for look in seen} == {result["windows"]}
    for look in seen:
        answer = look.result["answer"]
        assert context[answer["start"] : answer["end"]] == answer["text"]
        assert 0 < look.windows_done < look.windows_total
    runner.close()


@pytest.mark.usefixtures("long_looks")
def test_dropped_item_is_looked_at_no_more(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    runner.admit([("a", Query("who wrote", "the river was red " * 300, Options()))])
    runner.step()
    assert [look.key for look in runner.look()] == ["a"]
    runner.drop(["a"])
    assert runner.look() == []
    runner.admit([("b", Query("who wrote", "the river was red " * 300, Options()))])
    runner.step()
    runner.reset()
    assert runner.look() == []
    runner.close()
