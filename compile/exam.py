"""What a compiled model's answers are worth beside the eager one's: F1 on questions whose answers are known.

Questions come from a SQuAD-format file the user names; without one the sample texts are asked, and the eager model's
own answers are the references. Both models read the same windows and always answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from compile.model import LoadedModel
from compile.probes import Answer, Probe, Row, Run, find_answers, run_unpadded
from compile.samples import sample_queries
from corelane.engine.buckets import Bucket, smallest_fit
from corelane.engine.text.tokenize import Query, Reader, Reading
from corelane.errors import CompileFailed

#: Points of F1 that int8 may cost.
MOST_LOST = 0.3

#: The F1, 0 to 1, of an answer's text against the texts of its references.
Score = Callable[[str, Sequence[str]], float]


@dataclass(frozen=True, slots=True)
class Exam:
    """Questions, the references of each, and who scores; ``label`` says where they came from."""

    label: str
    queries: Sequence[Query]
    references: Sequence[Sequence[str]]
    score: Score


class Loss(NamedTuple):
    """Points of F1 lost against eager fp32 (below 0: gained), over how many questions, and whose."""

    points: float
    questions: int
    label: str


@dataclass(slots=True)
class Paper:
    """An exam cut for a ladder, with the eager model's logits; ``answers`` are what it answered."""

    exam: Exam | None
    probe: Probe
    answers: dict[int, Answer] = field(default_factory=dict)


def hand_out(model: LoadedModel, ladder: Sequence[Bucket], run_eager: Run, exam: Exam | None) -> Paper:
    """Cut the questions and have the eager model answer them; CompileFailed if none of them fits."""
    queries = sample_queries() if exam is None else list(exam.queries)
    reader = Reader(model.tokenizer, model.spec, ladder[-1].length)
    readings = enumerate(reader.read(queries))
    rows = [(item, read, window) for item, read in readings if isinstance(read, Reading) for window in read.windows]
    if not rows:
        raise CompileFailed(f"no question of {exam.label if exam else 'the samples'} fits the longest bucket")
    by_bucket: dict[Bucket, list[Row]] = {}
    for row in rows:
        by_bucket.setdefault(smallest_fit(row[2].length, ladder), []).append(row)
    parts = [
        (bucket, held[at : at + bucket.rows])
        for bucket, held in by_bucket.items()
        for at in range(0, len(held), bucket.rows)
    ]
    batches = [reader.fill(bucket, [(read, window) for _, read, window in part], bucket.rows) for bucket, part in parts]
    probe = Probe([part for _, part in parts], batches, [run_unpadded(run_eager, batch) for batch in batches])
    return Paper(exam, probe, find_answers(probe, probe.expected))


def mark(paper: Paper, run: Run) -> Loss:
    """Have a compiled model answer the same questions."""
    given = find_answers(paper.probe, [run(batch) for batch in paper.probe.batches])
    if paper.exam is None:
        lost = sum(1 - overlap(given.get(item), answer) for item, answer in paper.answers.items())
        return Loss(round(100 * lost / len(paper.answers), 3), len(paper.answers), "samples")
    exam, texts = paper.exam, _texts(paper)
    lost = 0.0
    for item, answer in paper.answers.items():
        expected, found = (exam.score(texts(item, one), exam.references[item]) for one in (answer, given.get(item)))
        lost += expected - found
    return Loss(round(100 * lost / len(paper.answers), 3), len(paper.answers), exam.label)


def _texts(paper: Paper) -> Callable[[int, Answer | None], str]:
    read = {item: reading for rows in paper.probe.rows for item, reading, _ in rows}

    def text(item: int, answer: Answer | None) -> str:
        if answer is None:
            return ""
        context, places = read[item].query.context, read[item].context.places
        return context[places[answer[0]][0] : places[answer[1]][1]]

    return text


def overlap(found: Answer | None, expected: Answer) -> float:
    """F1 over the tokens of two spans, both ends included."""
    if found is None:
        return 0.0
    shared = max(0, min(found[1], expected[1]) - max(found[0], expected[0]) + 1)
    return 2 * shared / (found[1] - found[0] + 1 + expected[1] - expected[0] + 1)
