"""How right a network is on the development part, by the engine's own search and the official scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compile.model.loading import SourceModel
from compile.model.reference import Run
from corelane.domain.squad import rightness
from corelane.engine.buckets import Bucket
from corelane.engine.question_answering.spans import Candidate
from corelane.engine.question_answering.task import QuestionAnsweringTask, ReadWindow, TokenizedQuery, best_candidates
from corelane.engine.task import Query
from corelane.engine.windows import Window
from corelane.plugins.tune.fitting import Observation, choose_threshold
from corelane.plugins.tune.training.examples import Example

#: Tokens a batch without gradients.
BATCH_TOKENS = 8192

#: Stands for the span of a question for which none was found; its margin is finite, so that it can be written down.
NOTHING = Candidate(0, 0, margin=-1e9, log_share=0.0, strength=-1e9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Figures of one judgement, in percent.

    ``f1`` and ``exact`` are over all questions at the threshold that suits them; ``answerable_f1`` is over the
    answerable ones if every question gets an answer. ``no_answer_accuracy`` is that of the threshold, and None without
    unanswerable questions.
    """

    questions: int
    exact: float
    f1: float
    answerable_f1: float
    no_answer_accuracy: float | None
    threshold: float

    @property
    def score(self) -> float:
        """By which one judgement is better than another: the mean of both F1.

        F1 at the best threshold alone would prefer an early network that answers little: on few questions it hardly
        differs, whichever way it is reached.
        """
        return (self.f1 + self.answerable_f1) / 2

    def as_data(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self) | {"score": self.score}


class Judge:
    """The questions of a development part, tokenized once."""

    def __init__(self, examples: Sequence[Example], model: SourceModel, max_length: int) -> None:
        self._task = QuestionAnsweringTask(model.tokenizer, model.spec, max_length)
        queries = [Query(each.question, each.context) for each in examples]
        read = [(each, item) for each, item in zip(examples, self._task.tokenize_all(queries), strict=True)]
        self._asked = [(each, item) for each, item in read if isinstance(item, TokenizedQuery)]
        rows = [(number, item, window) for number, (_, item) in enumerate(self._asked) for window in item.windows]
        self._rows = sorted(rows, key=lambda row: row[2].length)

    def __len__(self) -> int:
        return len(self._asked)

    def judge(self, run: Run) -> Verdict:
        """Ask a network every question."""
        found: dict[int, list[ReadWindow]] = {}
        for part in self._parts():
            rows = [(item, window) for _, item, window in part]
            logits = run(self._task.fill(Bucket(length=part[-1][2].length, rows=len(part)), rows, len(part)))
            for (number, _, _), windows in zip(part, self._task.decode(logits, rows), strict=True):
                found.setdefault(number, []).append(windows)
        return weigh([self._outcome(number, found[number]) for number in range(len(self._asked))])

    def _parts(self) -> list[list[tuple[int, TokenizedQuery, Window]]]:
        parts: list[list[tuple[int, TokenizedQuery, Window]]] = [[]]
        for row in self._rows:
            if parts[-1] and (len(parts[-1]) + 1) * row[2].length > BATCH_TOKENS:
                parts.append([])
            parts[-1].append(row)
        return parts

    def _outcome(self, number: int, windows: list[ReadWindow]) -> Observation:
        example, item = self._asked[number]
        windows.sort(key=lambda read: read.window.start)
        best = best_candidates(item.query, item.context, windows, None)
        found = best[0] if best else NOTHING
        right, f1 = rightness(example.context[found.start : found.end], example.references)
        return Observation(found.margin, found.log_share, right, f1, bool(example.references))


def weigh(seen: Sequence[Observation]) -> Verdict:
    """Return the figures of best spans at the threshold that suits them."""
    threshold = choose_threshold(seen)
    answerable = [each for each in seen if each.answerable]
    shown = [each for each in answerable if -each.margin <= threshold]
    withheld = sum(-each.margin > threshold for each in seen if not each.answerable)
    missing = len(seen) - len(answerable)
    return Verdict(
        questions=len(seen),
        exact=100 * (withheld + sum(each.right for each in shown)) / max(1, len(seen)),
        f1=100 * (withheld + sum(each.f1 for each in shown)) / max(1, len(seen)),
        answerable_f1=100 * sum(each.f1 for each in answerable) / max(1, len(answerable)),
        no_answer_accuracy=100 * withheld / missing if missing else None,
        threshold=threshold,
    )
