"""``corelane ask``: one question about one passage, answered by the running service, shown where it stands."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from corelane.cli.following import answer, check
from corelane.cli.options import AnswerOptions, PriorityOption
from corelane.cli.output import error_console, plain, print_line
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import Answer, Priority, Result
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.client import JobParts

#: Characters shown on each side of an answer.
SURROUNDINGS_CHARS = 160

#: A context of this form names a missing file and is not a passage: one word in ASCII, or a path.
FILE_NAME = re.compile(r"[!-~]{1,255}|[^\n]{0,250}/[^\n]{0,250}\.[A-Za-z][A-Za-z0-9]{0,5}")

ANSWER_STYLE = "bold black on green"


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    context: Annotated[
        str, typer.Option("--context", "-c", help="The passage: a file, the text itself, or - (stdin).")
    ],
    options: AnswerOptions,
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    priority: PriorityOption = Priority.NORMAL,
    as_json: JsonOption = False,
) -> None:
    """Ask one question about a passage. Ctrl-C cancels it."""
    if not question.strip():
        raise InvalidInput('the question is empty; ask one, as in: corelane ask "Who signed it?" --context FILE')
    passage = read_context(context)
    if not passage.strip():
        raise InvalidInput("the passage is empty; name a file that holds it, or give its text")
    parts: JobParts = {"model": model, "options": options}
    if priority is not Priority.NORMAL:
        parts["priority"] = priority
    errors = error_console()
    with connect(url, api_key, max_retries=2, on_wait=WaitNotice(errors)) as client:
        result = answer(client, question, passage, parts, errors)
    if as_json:
        print_line(result)
    check(result)
    if not as_json:
        Console(highlight=False).print(render(result, passage))


def read_context(given: str) -> str:
    """Return the passage: standard input for ``-``, the file of that name, or the text itself."""
    try:
        if given == "-":
            return sys.stdin.buffer.read().decode()
        if is_there(given):
            return Path(given).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the context is not UTF-8 text: {error}") from None
    except IsADirectoryError:
        raise InvalidInput(f"{given} is a folder; name a file in it") from None
    except OSError as error:
        raise InvalidInput(f"{given} cannot be read: {error.strerror}") from None
    if FILE_NAME.fullmatch(given):
        raise InvalidInput(f"there is no file {given}; give one that exists, or the passage itself (a word by `-c -`)")
    return given


def is_there(given: str) -> bool:
    """Return whether there is such a file or folder; a passage is often too long for a file's name."""
    try:
        return Path(given).exists()
    except OSError:
        return False


def render(result: Result, context: str) -> Text:
    """Return the result for readers: the answer, its score and offsets, and the text around it."""
    if result.answer is None:
        sure = "" if result.no_answer_score is None else f" (score {result.no_answer_score:.3f})"
        return Text.assemble(("no answer", "bold yellow"), (f" in this context{sure}", "dim"))
    answers = result.answers or [result.answer]
    return Text("\n\n").join(render_answer(each, context) for each in answers)


def render_answer(answer: Answer, context: str) -> Text:
    """Return one answer and its surroundings, highlighted."""
    before, after = surroundings(context, answer.start, answer.end)
    return Text.assemble(
        (plain(answer.text), "bold green"),
        (f"\nscore {answer.score:.3f} · characters {answer.start}–{answer.end}{in_units(answer)}\n", "dim"),
        plain(before),
        (plain(context[answer.start : answer.end]), ANSWER_STYLE),
        plain(after),
    )


def in_units(answer: Answer) -> str:
    """Return the offsets in other units, if they were asked for."""
    given = {} if answer.offsets is None else answer.offsets.model_dump(exclude_none=True)
    return "".join(f" · {unit} {start}–{end}" for unit, (start, end) in given.items())


def surroundings(context: str, start: int, end: int, width: int = SURROUNDINGS_CHARS) -> tuple[str, str]:
    """Return up to ``width`` characters before and after a span, cut between words if possible, with an ellipsis."""
    before, after = context[max(0, start - width) : start], context[end : end + width]
    if start > width:
        before = "…" + (before.partition(" ")[2] or before)
    if len(context) > end + width:
        after = (after.rpartition(" ")[0] or after) + "…"
    return before, after
