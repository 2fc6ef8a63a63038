"""The questions a benchmark asks: a SQuAD-format file named on the command line, by default the public test file."""

import argparse
from pathlib import Path

from corelane.cli.evaluate import read_document
from corelane.cli.squad import Question, read_questions

DEFAULT_FILE = Path(__file__).parent.parent.parent / "shared" / "data" / "squad-test-public-v1.1.json.gz"


def read_arguments(description: str | None) -> list[Question]:
    """The questions asked for; raises SystemExit saying so if the file is absent."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    if not arguments.file.exists():
        raise SystemExit(f"{arguments.file} is absent: give a file in SQuAD format")
    return read_questions(read_document(arguments.file)).questions[: arguments.limit]
