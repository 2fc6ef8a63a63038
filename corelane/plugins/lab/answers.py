"""Whether answers are right: each question answered once, as on the idle service, and as its references say. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from corelane.domain.squad import best_over, exact_match, token_f1
from corelane.plugins.lab.schema import AnswerCheck
from corelane.plugins.lab.senders import Reply
from corelane.plugins.lab.workload import Given, Questions


@dataclass(frozen=True, slots=True)
class Judged:
    """What is wrong with the answers to one request."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0


class AnswerJudge:
    """Compares answers, and adds up what it found in the measured part."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._is_scored = questions.is_scored and questions.has_answers
        self._scores: dict[tuple[int, str], tuple[float, float]] = {}
        self._exact = self._f1 = 0.0
        self._scored = 0
        self._found = AnswerCheck(checked=0, differ_from_idle=0 if questions.idle else None)

    @property
    def found(self) -> AnswerCheck:
        """The sum so far; means in percent where there are references."""
        if not self._scored:
            return self._found
        means = {"exact": 100 * self._exact / self._scored, "f1": 100 * self._f1 / self._scored}
        return self._found.model_copy(update=means)

    def judge(self, places: Sequence[int], reply: Reply, *, is_measured: bool) -> Judged:
        """Return what is wrong with a reply; one that is no success was counted as a failure and has no answers."""
        if reply.outcome != "ok":
            return Judged()
        counts = Counter(given.place for given in reply.results)
        lost = sum(counts[index] == 0 for index in range(len(places)))
        twice = sum(count - 1 for count in counts.values())
        known = [(places[given.place], given) for given in reply.results if 0 <= given.place < len(places)]
        judged = Judged(lost, twice, sum(self._differs(place, given) for place, given in known))
        if is_measured:
            self._add(judged, known)
        return judged

    def _differs(self, place: int, given: Given) -> bool:
        idle = self._questions.idle.get(place)
        return idle is not None and idle[1:] != given[1:]

    def _add(self, judged: Judged, known: Sequence[tuple[int, Given]]) -> None:
        found = self._found
        found.checked += len(known)
        found.lost += judged.lost
        found.twice += judged.twice
        if found.differ_from_idle is not None:
            found.differ_from_idle += judged.wrong
        if self._is_scored:
            for place, given in known:
                exact, f1 = self._score(place, given.text or "")
                self._exact, self._f1, self._scored = self._exact + exact, self._f1 + f1, self._scored + 1

    def _score(self, place: int, text: str) -> tuple[float, float]:
        if (place, text) not in self._scores:
            references = self._questions.asked[place].gold
            scores = best_over(exact_match, text, references), best_over(token_f1, text, references)
            self._scores[place, text] = scores
        return self._scores[place, text]


def add_up(parts: Sequence[AnswerCheck]) -> AnswerCheck:
    """Return the check of several processes as one; means are weighted by the answers that were checked."""
    total = AnswerCheck(checked=0)
    for part in parts:
        known = total.checked + part.checked
        for name in ("exact", "f1"):
            ours, theirs = getattr(total, name), getattr(part, name)
            if theirs is not None:
                ours = (total.checked * (ours or 0.0) + part.checked * theirs) / known if known else theirs
                setattr(total, name, ours)
        for name in ("checked", "lost", "twice"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        if part.differ_from_idle is not None:
            total.differ_from_idle = (total.differ_from_idle or 0) + part.differ_from_idle
    return total
