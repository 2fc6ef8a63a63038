"""Check that each question has one answer, like the idle service's, and score it against the references. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from corelane.plugins.lab.schema import AnswerCheck
from corelane.plugins.lab.senders import Reply
from corelane.plugins.lab.workload import Questions
from corelane.tasks.question_answering.squad import best_over, exact_match, token_f1


class AnswerJudge:
    """Compares answers; an answer that was scored is not scored again."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._is_scored = questions.is_scored and questions.has_answers
        self._scores: dict[tuple[int, str], tuple[float, float]] = {}

    def judge(self, places: Sequence[int], reply: Reply) -> AnswerCheck:
        """Return what is wrong with a reply. A failed reply has no answers: it was counted as a failure."""
        idle = self._questions.idle
        if reply.outcome != "ok":
            return AnswerCheck(checked=0, differ_from_idle=0 if idle else None)
        counts = Counter(given.place for given in reply.results)
        known = [(places[given.place], given) for given in reply.results if 0 <= given.place < len(places)]
        check = AnswerCheck(
            checked=len(known),
            lost=sum(counts[index] == 0 for index in range(len(places))),
            twice=sum(count - 1 for count in counts.values()),
        )
        if idle:
            check.differ_from_idle = sum(place in idle and idle[place][1:] != given[1:] for place, given in known)
        if self._is_scored and known:
            scores = [self._score(place, given.text or "") for place, given in known]
            check.exact, check.f1 = (100 * statistics.fmean(each) for each in zip(*scores, strict=True))
        return check

    def _score(self, place: int, text: str) -> tuple[float, float]:
        if (place, text) not in self._scores:
            references = self._questions.asked[place].gold
            scores = best_over(exact_match, text, references), best_over(token_f1, text, references)
            self._scores[place, text] = scores
        return self._scores[place, text]


def add_up(parts: Iterable[AnswerCheck]) -> AnswerCheck:
    """Sum several checks; means are weighted by the number of checked answers."""
    parts = list(parts)
    differ = [part.differ_from_idle for part in parts if part.differ_from_idle is not None]
    total = AnswerCheck(
        checked=sum(part.checked for part in parts),
        lost=sum(part.lost for part in parts),
        twice=sum(part.twice for part in parts),
        differ_from_idle=sum(differ) if differ else None,
    )
    scored = [part for part in parts if part.exact is not None]
    if scored:
        weights = [part.checked for part in scored]
        total.exact = statistics.fmean([part.exact or 0.0 for part in scored], weights)
        total.f1 = statistics.fmean([part.f1 or 0.0 for part in scored], weights)
    return total
