"""The F1 that a compiled model loses against the eager one, on questions with known answers.

Questions come from a SQuAD-format file that the user names. Without a file the samples are asked, and the eager
model's own answers are the references. Both models read the same windows and always answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compile.model.loading import SourceModel
from compile.model.probes import Answer, Probe, Row, fill_batches, find_answers, read_rows, run_unpadded
from compile.model.reference import Run
from compile.model.samples import sample_queries
from corelane.engine.batching import smallest_fit
from corelane.engine.buckets import Bucket
from corelane.engine.question_answering.task import QuestionAnsweringTask
from corelane.engine.task import Query
from corelane.errors import CompileFailed


@dataclass(frozen=True, slots=True)
class EvalSet:
    """Questions and the references of each; ``label`` says where they came from.

    ``text_f1`` gives the F1, 0 to 1, of an answer's text against its references.
    """

    label: str
    queries: Sequence[Query]
    references: Sequence[Sequence[str]]
    text_f1: Callable[[str, Sequence[str]], float]


class F1Loss(NamedTuple):
    """Points of F1 lost against eager fp32 (below 0: gained), the number of questions, and where they came from."""

    points: float
    questions: int
    label: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A prepared eval set, or the samples: its batches, and the eager model's answers."""

    eval_set: EvalSet | None
    probe: Probe
    answers: dict[int, Answer]


def prepare(model: SourceModel, ladder: Sequence[Bucket], run_eager: Run, eval_set: EvalSet | None) -> Evaluation:
    """Cut the questions for a ladder and have the eager model answer them; CompileFailed if no question fits."""
    task = QuestionAnsweringTask(model.tokenizer, model.spec, ladder[-1].length)
    by_bucket: dict[Bucket, list[Row]] = {}
    for row in read_rows(task, sample_queries() if eval_set is None else eval_set.queries):
        by_bucket.setdefault(smallest_fit(row[2].length, ladder), []).append(row)
    if not by_bucket:
        raise CompileFailed(f"no question of {eval_set.label if eval_set else 'the samples'} fits the longest bucket")
    filled = [fill_batches(task, bucket, rows) for bucket, rows in by_bucket.items()]
    parts = [part for some, _ in filled for part in some]
    batches = [batch for _, some in filled for batch in some]
    probe = Probe(parts, batches, [run_unpadded(run_eager, batch) for batch in batches])
    return Evaluation(eval_set, probe, find_answers(probe, probe.expected))


def score(evaluation: Evaluation, run: Run) -> F1Loss:
    """Have a compiled model answer the same questions, and compare."""
    given = find_answers(evaluation.probe, [run(batch) for batch in evaluation.probe.batches])
    expected, eval_set = evaluation.answers, evaluation.eval_set
    if eval_set is None:
        lost = sum(1 - overlap(given.get(item), answer) for item, answer in expected.items())
    else:
        lost = _score_texts(evaluation, eval_set, expected) - _score_texts(evaluation, eval_set, given)
    label = "samples" if eval_set is None else eval_set.label
    return F1Loss(round(100 * lost / len(expected), 3), len(expected), label)


def _score_texts(evaluation: Evaluation, eval_set: EvalSet, answers: dict[int, Answer]) -> float:
    """Return the sum of the F1 of a model's answers; a missing answer is an empty text."""
    read = {item: reading for rows in evaluation.probe.rows for item, reading, _ in rows}

    def text(item: int) -> str:
        if item not in answers:
            return ""
        first, last = answers[item]
        context, places = read[item].query.context, read[item].context.places
        return context[places[first][0] : places[last][1]]

    return sum(eval_set.text_f1(text(item), eval_set.references[item]) for item in evaluation.answers)


def overlap(found: Answer | None, expected: Answer) -> float:
    """Return the F1 over the tokens of two spans, both ends included."""
    if found is None:
        return 0.0
    shared = max(0, min(found[1], expected[1]) - max(found[0], expected[0]) + 1)
    return 2 * shared / (found[1] - found[0] + 1 + expected[1] - expected[0] + 1)
