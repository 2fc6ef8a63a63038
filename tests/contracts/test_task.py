"""What a runner promises of every task: question answering, and the null engine without and with batches."""

from collections.abc import Iterator

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import estimate_tokens
from corelane.engine.null import NullRunner
from corelane.engine.runner import Answered, Runner
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from tests.tools.fakes import FixedBackend

CONTEXTS = ["ada wrote", "the river was red " * 40, "paris"]


@pytest.fixture(params=["question answering", "null", "null with batches"])
def runner(request: pytest.FixtureRequest, tiny_artifact: Artifact) -> Iterator[Runner]:
    if request.param == "question answering":
        runner = Runner.open(FixedBackend(), tiny_artifact)
    else:
        runner = NullRunner(batch_s=0.0 if request.param == "null" else 0.001)
    yield runner
    runner.close()


def test_every_query_is_answered_once_under_its_key(runner: Runner) -> None:
    runner.admit([(key, Query("who", context)) for key, context in enumerate(CONTEXTS)])
    answered: list[Answered] = []
    while len(answered) < len(CONTEXTS):
        answered += runner.start().finish()
    assert sorted(key for key, _ in answered) == [0, 1, 2]
    assert {result["status"] for _, result in answered} == {"succeeded"}
    assert runner.start().finish() == []
    assert runner.work.items == 3


def test_query_admitted_while_a_batch_runs_is_answered_too_and_one_dropped_is_not(runner: Runner) -> None:
    runner.admit([("stays", Query("who", "ada")), ("goes", Query("who", "ada"))])
    running = runner.start()
    runner.drop(["goes", "unknown"])
    runner.admit([("comes", Query("who", "paris"))])
    keys = {key for key, _ in running.finish()} | {key for key, _ in runner.start().finish()}
    assert keys == {"stays", "comes"}


def test_nothing_is_left_after_a_reset(runner: Runner) -> None:
    runner.admit([(key, Query("who", context)) for key, context in enumerate(CONTEXTS)])
    runner.reset()
    assert runner.waiting_tokens(10**9) == 0
    assert runner.start().finish() == []


def test_items_of_the_null_engine_are_charged_what_they_were_estimated_at() -> None:
    runner = NullRunner(batch_s=0.001)
    runner.admit([(key, Query("who", context)) for key, context in enumerate(CONTEXTS)])
    charges = [charge[:2] for charge in runner.charges()]
    assert charges == [(key, estimate_tokens("who", context, 128)) for key, context in enumerate(CONTEXTS)]
    runner.close()
