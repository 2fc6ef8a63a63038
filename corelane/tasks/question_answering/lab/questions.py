"""Questions for the bench: SQuAD's files, lines with known answers, and made ones, each about a fact in its passage."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corelane.plugins.lab.workload import BenchItem, MakeText, TaskBench
from corelane.tasks.question_answering.squad import best_over, exact_match, read_questions, token_f1

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.plugins.lab.batch_work import BatchWork
    from corelane.plugins.lab.senders import Target

NAMES = ("Rosalind Vane", "Edgar Holt", "Miriam Castle", "Jonas Thorne", "Clara Whitlock", "Samuel Reed")
PLACES = ("attic", "lighthouse", "chapel", "granary", "observatory", "boathouse", "library", "mill")
TOWNS = ("Harlow", "Minster", "Eastbrook", "Calder", "Ashford", "Wexley")
THINGS = ("lanterns", "ropes", "barrels", "blankets", "compasses", "letters")


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence, the question about it, and the answer in it."""

    sentence: str
    question: str
    answer: str


class QuestionBench(TaskBench):
    """Question answering. A lone question has a path of its own, which batches name too."""

    path = "/v1/answers"

    def make(self, rng: random.Random, make_text: MakeText) -> BenchItem:
        """Make a question about a fact; its passage is filler around the sentence that holds it."""
        fact = make_fact(rng)
        context = make_text(fact.sentence, lambda text: self.tokens({"question": fact.question, "context": text}))
        return BenchItem({"question": fact.question, "context": context}, (fact.answer,))

    def item(self, line: Mapping[str, Any]) -> BenchItem:
        """Return the question of a line, with the answers that it has under `answers` or `answer`."""
        answers: Sequence[Any] = line.get("answers") or ([line["answer"]] if line.get("answer") else [])
        known = tuple(str(each["text"]) if isinstance(each, dict) else str(each) for each in answers)
        return BenchItem({"question": line["question"], "context": line["context"]}, known)

    def read(self, document: object) -> tuple[list[BenchItem], dict[str, Any]]:
        """Return the questions of a file in SQuAD's or XQuAD's layout."""
        found = read_questions(document)
        asked = [BenchItem({"question": each.question, "context": each.context}, each.gold) for each in found.questions]
        return asked, self.options(asked) and {"no_answer": found.may_be_unanswerable}

    def options(self, items: Sequence[BenchItem]) -> dict[str, Any]:
        """Return that each question has an answer, if answers are known."""
        return {"no_answer": False} if any(each.known for each in items) else {}

    def output(self, result: Mapping[str, Any]) -> Any:
        """Return the span of the best answer, or None."""
        answer = result.get("answer")
        return (answer["text"], answer["start"], answer["end"]) if answer else None

    def score(self, known: Sequence[str], output: Any) -> tuple[float, float]:
        """Return the exact match and the F1 of SQuAD's evaluation."""
        text = output[0] if output else ""
        return best_over(exact_match, text, known), best_over(token_f1, text, known)

    def long_work(self, client: "Client", target: "Target", texts: Sequence[str], words: int) -> "BatchWork":
        """Return documents of that many words, read one after the other."""
        from corelane.tasks.question_answering.lab.documents import Documents

        return Documents(client, target, texts, words)


def make_fact(rng: random.Random) -> Fact:
    """Make a fact."""
    name, place, town, thing = (rng.choice(each) for each in (NAMES, PLACES, TOWNS, THINGS))
    year, count = rng.randint(1780, 1960), rng.randint(12, 980)
    return rng.choice(
        (
            Fact(f"The key to the {place} is with {name}.", f"Who has the key to the {place}?", name),
            Fact(f"The {place} of {town} was opened in {year}.", f"When was the {place} of {town} opened?", str(year)),
            Fact(f"The {place} holds {count} {thing}.", f"How many {thing} does the {place} hold?", str(count)),
        )
    )
