"""``corelane ask``: one question about one passage, answered by the running service and shown in its context.

A question that is answered at once takes one request. If it waits for a version that no core holds, the reason is
shown. While a long passage is read, the progress is shown. Ctrl-C cancels the question.
"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from corelane.cli.one_item import check, result_for
from corelane.cli.options import PriorityOption
from corelane.cli.output import error_console, plain, print_line
from corelane.cli.service import JsonOption, ModelOption, UrlOption, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import Priority, Result
from corelane.errors import InvalidInput
from corelane.tasks.question_answering.cli.options import AnswerOptions
from corelane.tasks.question_answering.wire import Answer

if TYPE_CHECKING:
    from corelane.client import JobParts

#: Characters shown on each side of an answer.
SURROUNDINGS_CHARS = 160

#: A context of this form is taken for the name of a missing file, not for a passage: one word in ASCII, or a path.
FILE_NAME = re.compile(r"[!-~]{1,255}|[^\n]{0,250}/[^\n]{0,250}\.[A-Za-z][A-Za-z0-9]{0,5}")

#: What an item and its result are called.
WORDS = ("question", "answer")

ANSWER_STYLE = "bold black on green"


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    options: AnswerOptions,
    context: Annotated[
        str, typer.Option("--context", "-c", help="The passage: a file, the text itself, or - (stdin).")
    ],
    url: UrlOption = None,
    model: ModelOption = "default",
    priority: PriorityOption = Priority.NORMAL,
    as_json: JsonOption = False,
) -> None:
    """Ask one question about a passage. Ctrl-C cancels it."""
    if not question.strip():
        raise InvalidInput('the question is empty; ask one, as in: corelane ask "Who signed it?" --context FILE')
    passage = read_context(context)
    if not passage.strip():
        raise InvalidInput("the passage is empty; name a file that holds it, or give its text")
    item = {"question": question, "context": passage}
    parts: JobParts = {"model": model, "options": options}
    if priority is not Priority.NORMAL:
        parts["priority"] = priority
    errors = error_console()
    with connect(url, on_wait=WaitNotice(errors)) as client:
        result = result_for(client, item, parts, errors, WORDS)
    if as_json:
        print_line(result)
    check(result, WORDS)
    if not as_json:
        Console(highlight=False).print(render(result, passage))


def read_context(given: str) -> str:
    """Return the passage: standard input for ``-``, the file of that name, or the text itself."""
    try:
        if given == "-":
            return sys.stdin.buffer.read().decode()
        return Path(given).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the context is not UTF-8 text: {error}") from None
    except IsADirectoryError:
        raise InvalidInput(f"{given} is a folder; name a file in it") from None
    except (OSError, ValueError) as error:
        # A passage is often too long for a file's name, or has characters that a name cannot have.
        if isinstance(error, PermissionError):
            raise InvalidInput(f"{given} cannot be read: {error.strerror}") from None
    if FILE_NAME.fullmatch(given):
        raise InvalidInput(
            f"there is no file {given}; give one that exists, or the passage itself (a single word on stdin, by `-`)"
        )
    return given


def render(result: Result, context: str) -> Text:
    """Return the result for readers: the answer, its score and offsets, and the text around it."""
    if result.answer is None:
        sure = "" if result.no_answer_score is None else f" (score {result.no_answer_score:.3f})"
        return Text.assemble(("no answer", "bold yellow"), (f" in this context{sure}", "dim"))
    answers = result.answers or [result.answer]
    return Text("\n\n").join(render_answer(each, context) for each in answers)


def render_answer(answer: Answer, context: str) -> Text:
    """Return one answer and its surroundings, highlighted, with its offsets in the requested units."""
    before, after = surroundings(context, answer.start, answer.end)
    units = {} if answer.offsets is None else answer.offsets.model_dump(exclude_none=True)
    others = "".join(f" · {unit} {start}–{end}" for unit, (start, end) in units.items())
    return Text.assemble(
        (plain(answer.text), "bold green"),
        (f"\nscore {answer.score:.3f} · characters {answer.start}–{answer.end}{others}\n", "dim"),
        plain(before),
        (plain(context[answer.start : answer.end]), ANSWER_STYLE),
        plain(after),
    )


def surroundings(context: str, start: int, end: int, width: int = SURROUNDINGS_CHARS) -> tuple[str, str]:
    """Return up to ``width`` characters before and after a span, cut between words if possible, with an ellipsis."""
    before, after = context[max(0, start - width) : start], context[end : end + width]
    if start > width:
        before = "…" + (before.partition(" ")[2] or before)
    if len(context) > end + width:
        after = (after.rpartition(" ")[0] or after) + "…"
    return before, after
