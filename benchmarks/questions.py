"""Questions of a SQuAD-format file, and which answers to them are right. A quick run asks the examples."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, is_quick
from corelane.tasks.question_answering.squad import best_over, exact_match, read_set

DEFAULT_FILE = ROOT.parent / "shared" / "data" / "squad-test-public-v1.1.json.gz"

#: Questions of a quick run, and characters of their contexts.
QUICK_QUESTIONS, SHORT_CONTEXT = 12, 600


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its passage, and the right answers."""

    question: str
    context: str
    answers: tuple[str, ...] = ()

    def item(self) -> dict[str, str]:
        """Return it as the API takes it."""
        return {"question": self.question, "context": self.context}


def questions_of(file: Path | None) -> list[Question]:
    """Return the questions of a file, or of the default one; raise SystemExit if it is absent."""
    if file is None and is_quick():
        return examples()
    path = file or DEFAULT_FILE
    if not path.exists():
        raise SystemExit(f"{path} is absent: give a file in SQuAD format")
    return [Question(each.question, each.context, each.gold) for each in read_set(path).questions]


def texts_of(questions: Sequence[Question], count: int) -> list[str]:
    """Return different texts: questions, and sentences of passages."""
    sentences = [part for each in questions for part in re.split(r"(?<=[.!?])\s+", each.context)]
    found = list(dict.fromkeys([*(each.question for each in questions), *sentences]))
    random.Random(0).shuffle(found)
    return found[:count]


def examples() -> list[Question]:
    """Return examples of this repository that are answered at the beginning of their passage, cut to that part."""
    expected = json.loads((ROOT / "examples" / "expected.json").read_text())
    items = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text().splitlines()]
    cut = [Question(each["question"], each["context"][:SHORT_CONTEXT], tuple(expected[each["id"]])) for each in items]
    return [each for each in cut if any(answer in each.context for answer in each.answers)][:QUICK_QUESTIONS]


def is_exact(question: Question, answer: str) -> bool:
    """Say if an answer is one of the right ones."""
    return best_over(exact_match, answer, question.answers) > 0
