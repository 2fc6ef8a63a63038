"""The evidence that a calibration is fitted on: the best candidate of each query, before any calibration."""

from collections.abc import Sequence

from corelane.engine.question_answering.spans import Candidate
from corelane.engine.question_answering.task import QuestionAnsweringTask, ReadWindow, TokenizedQuery, best_candidates
from corelane.engine.runner import Runner
from corelane.engine.task import Query, Result


class CandidateTask(QuestionAnsweringTask):
    """Question answering whose result is the best candidate by its margin."""

    def compose(self, item: TokenizedQuery, decoded: Sequence[ReadWindow]) -> Result:
        """Return the best candidate in place of a result."""
        best = best_candidates(item.query, item.context, decoded, None)
        return {"best": best[0] if best else None}


class WitnessRunner(Runner):
    """A runner that returns candidates in place of results; open it with ``calibrated=False``."""

    task_type = CandidateTask

    def testify(self, queries: Sequence[Query]) -> list[Candidate | None]:
        """Return the best candidate of each query, in order; None where there is none or the query failed."""
        return [result.get("best") for result in self.answer(queries)]
