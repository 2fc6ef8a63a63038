"""The best answer so far of what takes long: when it is previewed, and what it is."""

from collections.abc import Hashable

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.engine.previews import LONG_WINDOWS, MOST_AT_ONCE, Preview, PreviewTimes
from corelane.engine.runner import Runner
from corelane.engine.task import RunnerLimits
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.fakes import FixedBackend


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def preview(times: PreviewTimes, took_s: float = 0.0) -> list[Hashable]:
    """Preview the items that are due; their keys."""
    due = times.due()
    for key in due:
        times.note(key, took_s)
    return due


def test_items_are_previewed_once_a_second(clock: Clock) -> None:
    times = PreviewTimes(clock)
    times.add("long")
    assert preview(times) == []
    clock.now += 1
    assert preview(times) == ["long"]
    clock.now += 0.9
    assert preview(times) == []
    clock.now += 0.1
    assert preview(times) == ["long"]


def test_previews_take_a_hundredth_of_the_time_at_most(clock: Clock) -> None:
    times = PreviewTimes(clock)
    times.add("a")
    clock.now += 1
    assert preview(times, 0.05) == ["a"]
    clock.now += 4.9
    assert preview(times) == []
    clock.now += 0.1
    assert preview(times) == ["a"]


def test_few_are_previewed_at_once_and_all_in_their_turn(clock: Clock) -> None:
    times = PreviewTimes(clock)
    names = [str(n) for n in range(3 * MOST_AT_ONCE)]
    for name in names:
        times.add(name)
    clock.now += 1
    assert sorted(str(key) for _ in range(4) for key in preview(times)) == sorted(names)


@pytest.mark.usefixtures("many_previews")
def test_short_items_are_never_previewed(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact, RunnerLimits(latency_target_s=1e-9))
    runner.warm_up()
    queries = [Query("who", "the river was red " * words, AnswerOptions(doc_stride=0)) for words in (90, 120)]
    runner.admit(list(enumerate(queries)))
    windows: dict[Hashable, int] = {}
    seen = set()
    while len(windows) < 2:
        windows |= {key: result["windows"] for key, result in runner.start().finish()}
        seen |= {preview.key for preview in runner.previews()}
    assert windows[0] < LONG_WINDOWS <= windows[1]
    assert seen == {1}
    runner.close()


@pytest.fixture
def many_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.engine.previews.PREVIEW_S", 0.0)
    monkeypatch.setattr("corelane.engine.previews.MOST_SHARE", 1e9)


@pytest.mark.usefixtures("many_previews")
def test_best_answer_so_far_is_a_stretch_of_the_context_and_the_last_one_is_the_result(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    context = "Ada wrote the first program. The river was cold in 1843. Paris is a city of light! " * 30
    query = Query("who wrote", context, AnswerOptions(no_answer=False, top_k=3, offsets=("utf16",)))
    runner.admit([("a", query)])
    seen: list[Preview] = []
    answered = runner.start().finish()
    while not answered:
        [preview] = runner.previews()
        seen.append(preview)
        answered = runner.start().finish()
    assert runner.previews() == []
    [(_, result)] = answered
    assert len(seen) > 3
    assert [preview.windows_done for preview in seen] == sorted({preview.windows_done for preview in seen})
    assert {preview.windows_total for preview in seen} == {result["windows"]}
    for preview in seen:
        answer = preview.result["answer"]
        assert context[answer["start"] : answer["end"]] == answer["text"]
        assert 0 < preview.windows_done < preview.windows_total
    runner.close()


@pytest.mark.usefixtures("many_previews")
def test_dropped_item_is_previewed_no_more(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    runner.admit([("a", Query("who wrote", "the river was red " * 300, AnswerOptions()))])
    runner.start().finish()
    assert [preview.key for preview in runner.previews()] == ["a"]
    runner.drop(["a"])
    assert runner.previews() == []
    runner.admit([("b", Query("who wrote", "the river was red " * 300, AnswerOptions()))])
    runner.start().finish()
    runner.reset()
    assert runner.previews() == []
    runner.close()


@pytest.mark.usefixtures("many_previews")
def test_item_without_a_window_read_is_previewed_once_it_has_one(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    runner.admit([("a", Query("who wrote", "the river was red " * 300, AnswerOptions()))])
    assert runner.previews() == []
    runner.start().finish()
    assert [preview.key for preview in runner.previews()] == ["a"]
    runner.close()
