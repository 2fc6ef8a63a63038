"""Evaluate a network on the development part, with the engine's own search and the project's evaluation."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from compile.model.loading import SourceModel
from compile.model.probes import Row, read_rows
from compile.model.reference import Run
from corelane.artifacts.calibration import Curve
from corelane.engine.buckets import Bucket
from corelane.tasks.question_answering.engine.task import (
    QuestionAnsweringTask,
    QuestionQuery,
    ReadWindow,
    best_candidates,
)
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.tune.evaluation import Metrics, evaluate
from corelane.tasks.question_answering.tune.fitting import Fit, choose_threshold
from corelane.tasks.question_answering.tune.held_out import Seen, observations, result_of
from corelane.tasks.question_answering.tune.training.examples import Example

#: Tokens of a batch without gradients.
BATCH_TOKENS = 8192

#: Used in place of a calibration: a network in training has none, and only the order of scores matters here.
PLAIN = Curve(intercept=0.0, slope=1.0)


@dataclass(frozen=True, slots=True)
class DevelopmentScores:
    """The quality of a network on the development part, at its best threshold."""

    metrics: Metrics
    threshold: float

    @property
    def score(self) -> float:
        """The value that ranks networks: the mean of F1, which may prefer one that answers few, and ``always_f1``."""
        return (self.metrics.f1 + (self.metrics.always_f1 or 0.0)) / 2

    def as_data(self) -> dict[str, Any]:
        """Return the figures as plain data; ``answerable_f1`` is F1 if every question gets an answer."""
        own = {"answerable_f1": self.metrics.always_f1 or 0.0, "threshold": self.threshold, "score": self.score}
        return asdict(self.metrics) | own


class Evaluator:
    """The questions of a development part, tokenized once."""

    def __init__(self, examples: Sequence[Example], model: SourceModel, max_length: int) -> None:
        self._task = QuestionAnsweringTask(model.tokenizer, model.spec, max_length)
        queries = [QuestionQuery(each.question, each.context) for each in examples]
        self._rows = sorted(read_rows(self._task, queries), key=lambda row: row[2].length)
        #: The questions that are short enough to be asked, by number.
        self._asked = {number: (examples[number], item) for number, item, _ in sorted(self._rows, key=itemgetter(0))}

    def __len__(self) -> int:
        return len(self._asked)

    def evaluate(self, run: Run) -> DevelopmentScores:
        """Ask a network every question."""
        found: dict[int, list[ReadWindow]] = {}
        for part in self._parts():
            rows = [(item, window) for _, item, window in part]
            logits = run(self._task.fill(Bucket(length=part[-1][2].length, rows=len(part)), rows, len(part)))
            for (number, _, _), windows in zip(part, self._task.decode(logits, rows), strict=True):
                found.setdefault(number, []).append(windows)
        return score_spans([self._best(number, found[number]) for number in self._asked])

    def _parts(self) -> list[list[Row]]:
        parts: list[list[Row]] = [[]]
        for row in self._rows:
            if parts[-1] and (len(parts[-1]) + 1) * row[2].length > BATCH_TOKENS:
                parts.append([])
            parts[-1].append(row)
        return parts

    def _best(self, number: int, windows: list[ReadWindow]) -> Seen:
        example, item = self._asked[number]
        windows.sort(key=lambda read: read.window.start)
        best = best_candidates(item.query, item.context, windows, None)
        question = SquadQuestion(example.id, example.question, example.context, example.gold)
        return question, best[0] if best else None


def score_spans(seen: Sequence[Seen]) -> DevelopmentScores:
    """Return the quality of the best spans at their best threshold."""
    threshold = choose_threshold(observations(seen))
    plain = Fit(PLAIN, PLAIN, threshold)
    results = [result_of(number, *each, plain) for number, each in enumerate(seen)]
    return DevelopmentScores(evaluate([question for question, _ in seen], results), threshold)
