"""The F1 that a compiled model loses against the eager one, on questions with known answers.

Questions come from a SQuAD-format file that the user names. Without a file the samples are asked, and the eager
model's own answers are the references. Both models read the same windows and always answer.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from compile.model.probes import fill_batches, read_rows, run_unpadded
from compile.tasks.evaluation import EvalSet, F1Loss
from compile.tasks.question_answering.answers import Answer, find_answers
from compile.tasks.question_answering.samples import sample_queries
from compile.tasks.task import CompileTask, Row
from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.backends.protocol import Pass
from corelane.engine.batching import smallest_fit
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, InvalidInput
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, QuestionQuery, TokenizedQuery
from corelane.tasks.question_answering.squad import best_over, read_set, token_f1


def read_eval_set(path: Path) -> EvalSet:
    """Return the questions of a SQuAD-format file that have an answer; raise InvalidInput if there are none."""
    asked = [question for question in read_set(path).questions if question.gold]
    if not asked:
        raise InvalidInput(f"{path} has no question with an answer")
    queries = [QuestionQuery(question.question, question.context) for question in asked]
    return EvalSet(path.name, queries, [question.gold for question in asked], partial(best_over, token_f1))


def measure_loss(
    head: CompileTask,
    tokenizer: Tokenizer,
    spec: TokenizerSpec,
    ladder: Sequence[Bucket],
    run_eager: Pass,
    run: Pass,
    eval_set: EvalSet | None,
) -> F1Loss:
    """Have both models answer questions cut for a ladder, and compare the F1; raises CompileFailed if none fits."""
    label = "the samples" if eval_set is None else eval_set.label
    task = QuestionAnsweringTask(tokenizer, spec, ladder[-1].length)
    by_bucket: dict[Bucket, list[Row]] = {}
    for row in read_rows(task, sample_queries() if eval_set is None else eval_set.queries):
        by_bucket.setdefault(smallest_fit(row[2].length, ladder), []).append(row)
    if not by_bucket:
        raise CompileFailed(f"no question of {label} fits the longest bucket")
    filled = [fill_batches(task, bucket, rows) for bucket, rows in by_bucket.items()]
    parts = [part for some, _ in filled for part in some]
    batches = [batch for _, some in filled for batch in some]
    expected = find_answers(parts, [run_unpadded(head, run_eager, batch) for batch in batches])
    given = find_answers(parts, [run(batch) for batch in batches])
    if eval_set is None:
        lost = sum(1 - overlap(given.get(item), answer) for item, answer in expected.items())
    else:
        texts = {item: reading for rows in parts for item, reading, _ in rows}
        lost = sum(
            _text_f1(eval_set, item, texts[item], answer) - _text_f1(eval_set, item, texts[item], given.get(item))
            for item, answer in expected.items()
        )
    return F1Loss(round(100 * lost / len(expected), 3), len(expected), "samples" if eval_set is None else label)


def _text_f1(eval_set: EvalSet, item: int, reading: TokenizedQuery, answer: Answer | None) -> float:
    """Return the F1 of one answer's text; a missing answer is an empty text."""
    if answer is None:
        return eval_set.text_f1("", eval_set.references[item])
    (first, last), places = answer, reading.context.places
    return eval_set.text_f1(reading.query.text[places[first][0] : places[last][1]], eval_set.references[item])


def overlap(found: Answer | None, expected: Answer) -> float:
    """Return the F1 over the tokens of two spans, both ends included."""
    if found is None:
        return 0.0
    shared = max(0, min(found[1], expected[1]) - max(found[0], expected[0]) + 1)
    return 2 * shared / (found[1] - found[0] + 1 + expected[1] - expected[0] + 1)
