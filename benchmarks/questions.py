"""The questions a benchmark asks: a SQuAD-format file named on the command line, by default the public test file. A
quick run asks the examples of this repository.
"""

import argparse
import json
from pathlib import Path

from benchmarks.runs import QUICK, is_quick
from corelane.domain.squad import Question, read_document, read_questions

ROOT = Path(__file__).parent.parent

DEFAULT_FILE = ROOT.parent / "shared" / "data" / "squad-test-public-v1.1.json.gz"

#: Characters of the contexts of a quick run.
SHORT_CONTEXT = 600


def read_arguments(description: str | None) -> list[Question]:
    """Return the questions asked for; raise SystemExit if the file is absent."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument(QUICK, action="store_true", help="seconds, few questions, and no figures kept")
    arguments = parser.parse_args()
    return questions_of(arguments.file)[: arguments.limit]


def questions_of(file: Path | None) -> list[Question]:
    """Return the questions of a file, or of the default one; raise SystemExit if it is absent."""
    if file is None and is_quick():
        return examples()
    path = file or DEFAULT_FILE
    if not path.exists():
        raise SystemExit(f"{path} is absent: give a file in SQuAD format")
    return read_questions(read_document(path)).questions


def examples() -> list[Question]:
    """Return the examples of this repository that are answered at the beginning of their passage, cut to that part."""
    expected = json.loads((ROOT / "examples" / "expected.json").read_text())
    items = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text().splitlines()]
    short = [(item, item["context"][:SHORT_CONTEXT], expected[item["id"]]) for item in items]
    return [
        Question(item["id"], item["question"], context, tuple(answers))
        for item, context, answers in short
        if any(answer in context for answer in answers)
    ]


def item(question: Question) -> dict[str, str]:
    """Return a question as the API takes it."""
    return {"question": question.question, "context": question.context}
