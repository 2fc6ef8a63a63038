"""The options of answers as command-line options, shared by ``ask``, ``batch`` and ``eval``."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from corelane.cli.commands import Made
from corelane.errors import InvalidInput


class OffsetUnits(StrEnum):
    """Units of offsets in addition to characters."""

    UTF16 = "utf16"
    BYTES = "bytes"


StrideOption = Annotated[int | None, typer.Option(min=0, max=400, help="Overlap of windows, in tokens.")]
ThresholdOption = Annotated[
    float | None, typer.Option(min=-1000, max=1000, help="Null margin above which there is no answer.")
]
PrecisionOption = Annotated[
    float | None, typer.Option(help="Give only answers whose score is at least this; the model must be calibrated.")
]


#: Options of a job that are called otherwise on the command line.
NAMES = {"no_answer_threshold": "--threshold", "no_answer": "--always-answer"}


def answer_options(
    *,
    top_k: Annotated[int | None, typer.Option(min=1, max=20, help="Answers per question, best first.")] = None,
    max_answer_tokens: Annotated[int | None, typer.Option(min=1, max=128, help="Longest answer, in tokens.")] = None,
    doc_stride: StrideOption = None,
    threshold: ThresholdOption = None,
    min_precision: PrecisionOption = None,
    offsets: Annotated[
        list[OffsetUnits] | None, typer.Option(help="Units for offsets in addition to characters; may be repeated.")
    ] = None,
    always_answer: Annotated[bool, typer.Option("--always-answer", help="Never answer with null.")] = False,
) -> dict[str, Any]:
    """Return the given options of a job; raise InvalidInput if they exclude each other."""
    if min_precision is not None and (always_answer or threshold is not None):
        raise InvalidInput("--min-precision decides what has an answer: leave --threshold and --always-answer out")
    if min_precision is not None and not 0 < min_precision < 1:
        raise InvalidInput("--min-precision is a share between 0 and 1, as 0.8")
    given = {
        "top_k": top_k,
        "max_answer_tokens": max_answer_tokens,
        "doc_stride": doc_stride,
        "no_answer_threshold": threshold,
        "no_answer": False if always_answer else None,
        "min_precision": min_precision,
        "offsets": [unit.value for unit in offsets] if offsets else None,
    }
    return {name: value for name, value in given.items() if value is not None}


AnswerOptions = Annotated[dict[str, Any], Made(answer_options)]
