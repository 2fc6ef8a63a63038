"""Question answering, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compile.tasks.question_answering.samples import sample_queries
from compile.tasks.task import CompileTask
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.tasks.question_answering.engine.spans import find_spans

if TYPE_CHECKING:
    from compile.model.probes import Probe

#: First and last context token of an answer, counted within its item.
Answer = tuple[int, int]


class QuestionAnsweringHead(CompileTask):
    """Gives each token's logits to begin and to end an answer."""

    name = DEFAULT_TASK
    heads = ("ForQuestionAnswering",)
    loader = "AutoModelForQuestionAnswering"
    outputs = ("start_logits", "end_logits")
    trained_to = "answer questions"

    def samples(self) -> list[Query]:
        """Return sample questions."""
        return sample_queries()

    def found(self, probe: "Probe", logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the best answer of each question."""
        return find_answers(probe, logits)


def find_answers(probe: "Probe", logits: Sequence[Logits]) -> dict[int, Answer]:
    """Return the best span of each query over all its windows, even if "no answer" is more likely."""
    best: dict[int, tuple[float, Answer]] = {}
    for rows, (starts, ends) in zip(probe.rows, logits, strict=True):
        for row, (item, reading, window) in enumerate(rows):
            found = find_spans(
                starts[row : row + 1],
                ends[row : row + 1],
                np.array([reading.context_at]),
                np.array([reading.ends_at(window)]),
                max_answer_tokens=reading.query.options.max_answer_tokens,
                keep=1,
                null_at=window.length - 1 if reading.null_last else 0,
            )[0]
            shift = window.start - reading.context_at
            for start, end, margin in zip(found.starts, found.ends, found.margins, strict=True):
                candidate = (float(margin), (int(start) + shift, int(end) + shift))
                best[item] = max(best.get(item, candidate), candidate)
    return {item: answer for item, (_, answer) in best.items()}


TASK = QuestionAnsweringHead()
