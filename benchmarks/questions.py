"""Questions of a SQuAD-format file, and official SQuAD scores of answers to them. A quick run asks the examples."""

import gzip
import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, is_quick

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
    raw = path.read_bytes()
    document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return [
        Question(asked["question"], paragraph["context"], tuple(answer["text"] for answer in asked["answers"]))
        for article in document["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]


def examples() -> list[Question]:
    """Return examples of this repository that are answered at the beginning of their passage, cut to that part."""
    expected = json.loads((ROOT / "examples" / "expected.json").read_text())
    items = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text().splitlines()]
    cut = [Question(each["question"], each["context"][:SHORT_CONTEXT], tuple(expected[each["id"]])) for each in items]
    return [each for each in cut if any(answer in each.context for answer in each.answers)][:QUICK_QUESTIONS]


def words_of(text: str) -> list[str]:
    """Return the words that SQuAD's scores compare: in lower case, without punctuation and articles."""
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def is_exact(question: Question, answer: str) -> bool:
    """Say if an answer is one of the right ones."""
    return any(words_of(answer) == words_of(right) for right in question.answers)


def f1_of(question: Question, answer: str) -> float:
    """Return the best overlap of an answer with a right one."""
    return max((_overlap(words_of(answer), words_of(right)) for right in question.answers), default=0.0)


def _overlap(given: Sequence[str], right: Sequence[str]) -> float:
    common = (Counter(given) & Counter(right)).total()
    return 2 * common / (len(given) + len(right)) if common else 0.0


def scores(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Return EM and F1 in percent."""
    pairs = list(zip(questions, answers, strict=True))
    return {
        "exact": 100 * sum(is_exact(*pair) for pair in pairs) / len(pairs),
        "f1": 100 * sum(f1_of(*pair) for pair in pairs) / len(pairs),
    }
