"""Questions for ``corelane bench``: made ones, SQuAD's files, and lines with known answers."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from corelane.domain.jobs import Result
from corelane.plugins.bench.items import Given, TaskItems, prose
from corelane.tasks.question_answering.squad import best_over, read_questions, token_f1

NAMES = ("Rosalind Vane", "Edgar Holt", "Miriam Castle", "Jonas Thorne", "Clara Whitlock", "Samuel Reed")
PLACES = ("attic", "lighthouse", "chapel", "observatory", "library", "mill")


class QuestionItems(TaskItems):
    """Questions and passages."""

    def make(self, rng: random.Random, tokens: int) -> Given:
        """Make a question whose answer stands in the second sentence of its passage."""
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        fact = f"The key to the {place} is with {name}."
        before, _, after = prose(rng, max(0, tokens - len(fact.split()) - 1)).partition(". ")
        passage = " ".join(filter(None, [before and f"{before.removesuffix('.')}.", fact, after]))
        return Given({"question": f"Who has the key to the {place}?", "context": passage}, (name,))

    def of_line(self, line: Mapping[str, Any]) -> Given:
        """Return the question of a line, with the right answers under ``answers`` or ``answer``."""
        item = {name: value for name, value in line.items() if name not in ("answers", "answer")}
        answers: Sequence[Any] = line.get("answers") or ([line["answer"]] if line.get("answer") else [])
        known = tuple(str(each["text"]) if isinstance(each, dict) else str(each) for each in answers)
        return super().of_line(item)._replace(known=known)

    def of_document(self, document: Mapping[str, Any]) -> list[Given] | None:
        """Return the questions of a file in SQuAD's or XQuAD's layout; "" is right where there is no answer."""
        if "data" not in document:
            return None
        found = read_questions(document).questions
        return [Given({"question": each.question, "context": each.context}, each.gold or ("",)) for each in found]

    def options(self, given: Sequence[Given]) -> dict[str, Any]:
        """Return options that turn "no answer" off, if an answer to each question is known."""
        return {"no_answer": False} if all(any(each.known) for each in given) else {}

    def f1(self, known: Sequence[str], result: Result) -> float:
        """Return the F1 of SQuAD's evaluation."""
        return best_over(token_f1, result.answer.text if result.answer else "", known)


ITEMS = QuestionItems
