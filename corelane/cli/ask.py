"""``corelane ask``: one question about one passage, answered by the running service, shown where it stands."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from corelane.cli.errors import exit_on_error
from corelane.cli.output import plain, print_line
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption, connect
from corelane.errors import InvalidInput, ServiceError
from corelane.jobs import Answer, Result

#: Characters shown on each side of an answer.
SURROUNDINGS_CHARS = 160

#: A context that looks like this is a file name with a typing mistake, not a passage.
FILE_NAME = re.compile(r"\S+\.[A-Za-z][A-Za-z0-9]{0,5}")

ANSWER_STYLE = "bold black on green"


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    context: Annotated[
        str, typer.Option("--context", "-c", help="The passage: a file, the text itself, or - (stdin).")
    ],
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    top_k: Annotated[int, typer.Option(min=1, max=20, help="Answers shown, best first.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Ask one question about a passage."""
    console = Console(highlight=False)
    with exit_on_error(), connect(url, api_key, max_retries=2) as client:
        passage = read_context(context)
        with Console(stderr=True).status("asking …"):
            result = client.ask(question, passage, model=model, top_k=top_k)
        if as_json:
            print_line(result)
        if result.error is not None:
            raise ServiceError(result.error.detail, status=200, problem_code=result.error.code)
        if not as_json:
            console.print(render(result, passage))


def read_context(given: str) -> str:
    """The passage: standard input for ``-``, the file of that name, or the text itself."""
    try:
        if given == "-":
            return sys.stdin.buffer.read().decode()
        if is_file(given):
            return Path(given).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the context is not UTF-8 text: {error}") from None
    except OSError as error:
        raise InvalidInput(f"{given} cannot be read: {error.strerror}") from None
    if FILE_NAME.fullmatch(given):
        raise InvalidInput(f"there is no file {given}; give one that exists, or the passage itself")
    return given


def is_file(given: str) -> bool:
    """Whether there is such a file; a passage is often too long to be the name of one."""
    try:
        return Path(given).is_file()
    except OSError:
        return False


def render(result: Result, context: str) -> Text:
    """The result for a reader: the answer, how sure, where, and the text around it."""
    if result.answer is None:
        sure = "" if result.no_answer_score is None else f" (score {result.no_answer_score:.3f})"
        return Text.assemble(("no answer", "bold yellow"), (f" in this context{sure}", "dim"))
    answers = result.answers or [result.answer]
    return Text("\n\n").join(render_answer(answer, context) for answer in answers)


def render_answer(answer: Answer, context: str) -> Text:
    """One answer and its surroundings, highlighted."""
    before, after = surroundings(context, answer.start, answer.end)
    return Text.assemble(
        (plain(answer.text), "bold green"),
        (f"\nscore {answer.score:.3f} · characters {answer.start}–{answer.end}\n", "dim"),
        plain(before),
        (plain(context[answer.start : answer.end]), ANSWER_STYLE),
        plain(after),
    )


def surroundings(context: str, start: int, end: int, width: int = SURROUNDINGS_CHARS) -> tuple[str, str]:
    """Up to ``width`` characters before and after a span, cut between words where there are any, with an ellipsis."""
    before, after = context[max(0, start - width) : start], context[end : end + width]
    if start > width:
        before = "…" + (before.partition(" ")[2] or before)
    if len(context) > end + width:
        after = (after.rpartition(" ")[0] or after) + "…"
    return before, after
