"""Which words count as those of question answering outside its folder."""

import pytest

from tests.names import ALLOWED, NOT_MEANT, WORDS, main


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("asks a question about its contexts", ["question", "contexts"]),
        ("ask_question(SquadQuestion, ANSWERS, AnswerCheck)", ["question", "Question", "ANSWERS", "Answer"]),
        ("from corelane.tasks.question_answering.wire import Item", ["question"]),
        ("answered, answering, makespan_s, unanswerable, colspan, questionnaire", []),
        ('<span class="x"></span> @contextmanager import contextlib {% import "a" with context %}', []),
        ("context: typer.Context", ["context"]),
    ],
)
def test_word_counts_by_its_parts(text: str, found: list[str]) -> None:
    assert WORDS.findall(NOT_MEANT.sub(" ", text)) == found


def test_no_more_files_name_them() -> None:
    assert main() == 0
    assert all(ALLOWED.values())
