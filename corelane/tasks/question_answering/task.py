"""Question answering as a task: its items are a question and a passage."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from corelane.domain.dispatch import WINDOW_TOKENS, estimate, estimate_tokens, measure
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import NotCalibrated, PrecisionOutOfReach
from corelane.tasks.question_answering.contexts import SharesContexts
from corelane.tasks.question_answering.dialects import Answers, HfAnswers
from corelane.tasks.question_answering.examples import JOB_EXAMPLES
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.present import AnswerPresenter
from corelane.tasks.question_answering.wire import AnswerResult, Question
from corelane.tasks.task import Bounds, Parts, Task
from corelane.tasks.text import check_beside, check_text


def question_tokens(question: str, options: AnswerOptions) -> float:
    """Estimate how many tokens of a question are read, by the job's options."""
    return min(measure(question), options.max_question_len or math.inf)


class QuestionAnswering(Task):
    """Extractive question answering."""

    name = DEFAULT_TASK
    version = 1
    item = Question
    options = AnswerOptions
    result = AnswerResult
    shares = SharesContexts
    beside = (str,)
    nothing: Mapping[str, Any] = MappingProxyType({"answer": None, "answers": [], "no_answer_score": None})
    output = "an answer"
    first_try = 'ask "Who wrote it?" --context "Ada wrote it."'
    example = Answers.example
    job_examples = JOB_EXAMPLES
    dialects = (Answers(), HfAnswers())
    engine = "corelane.tasks.question_answering.engine.task:QuestionAnsweringTask"
    present = AnswerPresenter()

    def parts(self, item: Question) -> Parts:
        """Return the question, and the passage or its id."""
        return item.question, item.context, item.context_id

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:
        """Return the fields of a question."""
        passage = {"context": text} if text_id is None else {"context_id": text_id}
        return {"question": beside, **passage}

    def sharing(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the job's field that has the shared passages."""
        return {"contexts": dict(texts)}

    def tokens(self, beside: Any, text: str, options: AnswerOptions) -> int:
        """Estimate the tokens of all windows of a question and its passage."""
        if options.max_seq_len or options.max_question_len:
            return self.tokens_of(beside, measure(text), options)
        return estimate_tokens(beside, text, options.doc_stride)

    def tokens_of(self, beside: Any, text_tokens: float, options: AnswerOptions) -> int:
        """Estimate as ``tokens`` does, from the passage's estimated tokens instead of its text."""
        window = options.max_seq_len or WINDOW_TOKENS
        return estimate(question_tokens(beside, options), text_tokens, options.doc_stride, window)

    def check(self, bounds: Bounds, place: str, item: Question) -> None:
        """Raise TooLarge for a question or a passage that is too long."""
        check_beside(bounds, place, "the question", item.question)
        if item.context is not None:
            check_text(bounds, place, "the context", item.context)

    def depends_on_version(self, options: AnswerOptions) -> bool:
        """Return whether a precision is asked for, which only calibrated versions have."""
        return options.min_precision is not None

    def check_version(self, options: AnswerOptions, version: str, summary: Mapping[str, Any]) -> None:
        """Raise NotCalibrated if no answer of a version can have the precision that is asked for."""
        if not summary.get("calibrated"):
            raise NotCalibrated(
                f"{version} is not calibrated: leave `min_precision` out, or have its operator calibrate it"
            )
        highest, asked = summary["highest_precision"], options.min_precision or 0.0
        if asked > highest:
            raise PrecisionOutOfReach(
                f"no answer of {version} has a score above {highest:g}, so `min_precision` {asked:g} would give none: "
                f"ask for {highest:g} at most, or have its operator calibrate it on questions like yours"
            )

    def columns(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the best answer and its place, and all answers if there are several."""
        best = dict(result["answer"] or dict.fromkeys(("text", "start", "end", "score")))
        several = {"answers": result["answers"]} if len(result["answers"]) > 1 else {}
        return {"answer": best.pop("text"), **best, "no_answer_score": result["no_answer_score"], **several}

    def line(self, result: Mapping[str, Any]) -> str:
        """Return the best answer and its score."""
        found = result["answer"]
        return "no answer" if found is None else f"{found['text']} ({found['score']:.3f})"
