"""Ask an artifact questions in this process, on one thread: its answers, or its best spans uncalibrated."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from compile.model.timing import one_thread
from corelane.artifacts.manifest import Artifact
from corelane.engine import task
from corelane.engine.backends.registry import open_backend
from corelane.engine.runner import Runner
from corelane.settings import NEURON_PYTHON
from corelane.tasks.question_answering.engine.task import (
    QuestionAnsweringTask,
    QuestionQuery,
    ReadWindow,
    TokenizedQuery,
    best_candidates,
)
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.tune.held_out import Seen
from corelane.tasks.question_answering.wire import AnswerResult

#: Questions answered between two steps of the progress bar.
STEP = 64


class CandidateTask(QuestionAnsweringTask):
    """Question answering whose result is the best candidate by its margin."""

    def compose(self, item: TokenizedQuery, decoded: Sequence[ReadWindow]) -> task.Result:
        """Return the best candidate instead of a result."""
        best = best_candidates(item.query, item.context, decoded, None)
        return {"best": best[0] if best else None}


class CandidateRunner(Runner):
    """A runner that returns candidates instead of results."""

    task_type = CandidateTask


def answer(artifact: Artifact, questions: Sequence[SquadQuestion]) -> list[AnswerResult]:
    """Ask a version every question, in the way a worker does."""
    with one_thread():
        results = _run(Runner.open(open_backend(artifact.manifest.target), artifact), questions)
    return [AnswerResult.model_validate(each | {"index": number}) for number, each in enumerate(results)]


def observe(artifact: Artifact, questions: Sequence[SquadQuestion], neuron_python: str = NEURON_PYTHON) -> list[Seen]:
    """Return each question with its best span, uncalibrated; None if there is no span or the question failed."""
    with one_thread():
        backend = open_backend(artifact.manifest.target, neuron_python=neuron_python)
        results = _run(CandidateRunner.open(backend, artifact, calibrated=False), questions)
    return [(question, result.get("best")) for question, result in zip(questions, results, strict=True)]


def _run(runner: Runner, questions: Sequence[SquadQuestion]) -> list[dict[str, Any]]:
    """Return the runner's result of each question, with a progress bar, and close it."""
    found: list[dict[str, Any]] = []
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("asking", total=len(questions))
        for at in range(0, len(questions), STEP):
            part = questions[at : at + STEP]
            found += runner.results_of([QuestionQuery(each.question, each.context) for each in part])
            progress.advance(shown, len(part))
    runner.close()
    return found
