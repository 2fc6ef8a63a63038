"""Question answering, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compile.tasks.evaluation import EvalSet, F1Loss
from compile.tasks.question_answering.answers import find_answers
from compile.tasks.question_answering.samples import sample_queries
from compile.tasks.task import CompileTask, Row
from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.backends.protocol import Logits, Pass
from corelane.engine.task import Query

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corelane.artifacts.manifest import TokenizerSpec
    from corelane.engine.buckets import Bucket


class QuestionAnsweringHead(CompileTask):
    """Gives each token's logits to begin and to end an answer."""

    name = DEFAULT_TASK
    heads = ("ForQuestionAnswering",)
    loader = "AutoModelForQuestionAnswering"
    outputs = ("start_logits", "end_logits")
    trained_to = "answer questions"
    longest_rows = WINDOW_TOKENS
    measures_loss = True

    def samples(self) -> list[Query]:
        """Return sample questions."""
        return sample_queries()

    def measure_loss(
        self,
        tokenizer: "Tokenizer",
        spec: "TokenizerSpec",
        ladder: "Sequence[Bucket]",
        run_eager: "Pass",
        run: "Pass",
        eval_set: EvalSet | None,
    ) -> F1Loss:
        """Have both models answer questions cut for a ladder, and compare the F1; raises CompileFailed if none fits."""
        from compile.tasks.question_answering.evaluation import measure_loss

        return measure_loss(self, tokenizer, spec, ladder, run_eager, run, eval_set)

    def found(self, parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the best answer of each question."""
        return find_answers(parts, logits)


TASK = QuestionAnsweringHead()
