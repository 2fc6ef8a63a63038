"""Questions of a SQuAD-format file, and official SQuAD scores of answers to them. A quick run asks the examples."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, is_quick
from corelane.tasks.question_answering.squad import best_over, exact_match, read_set, token_f1

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


def examples() -> list[Question]:
    """Return examples of this repository that are answered at the beginning of their passage, cut to that part."""
    expected = json.loads((ROOT / "examples" / "expected.json").read_text())
    items = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text().splitlines()]
    cut = [Question(each["question"], each["context"][:SHORT_CONTEXT], tuple(expected[each["id"]])) for each in items]
    return [each for each in cut if any(answer in each.context for answer in each.answers)][:QUICK_QUESTIONS]


def is_exact(question: Question, answer: str) -> bool:
    """Say if an answer is one of the right ones."""
    return best_over(exact_match, answer, question.answers) > 0


def scores(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Return EM and F1 in percent."""
    pairs = list(zip(questions, answers, strict=True))
    return {
        name: 100 * statistics.fmean(best_over(measure, answer, question.answers) for question, answer in pairs)
        for name, measure in (("exact", exact_match), ("f1", token_f1))
    }
