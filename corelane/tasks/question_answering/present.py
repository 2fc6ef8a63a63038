"""What pages show of questions: the answers, marked in their passage."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from corelane.tasks.presenting import ItemCall, Piece, Presenter, Sample, cut
from corelane.tasks.question_answering.wire import Answer, AnswerResult, Question

#: An answer that scores less is in the list of candidates, but not marked.
LEAST_SCORE = 0.01


@cache
def samples() -> tuple[Sample, ...]:
    """Read the samples: several languages, and scripts where offsets go wrong."""
    return tuple(Sample(**each) for each in orjson.loads(Path(__file__).with_name("samples.json").read_bytes()))


def mark_answers(context: str, answers: Sequence[Answer]) -> list[Piece]:
    """Return a passage with its answers marked, the best one differently."""
    marks = ("rank-best", *["rank-other"] * len(answers))
    numbered = enumerate(zip(answers, marks, strict=False), 1)
    return cut(context, [(each.start, Piece(each.text, mark, f"answer {rank}")) for rank, (each, mark) in numbered])


def likely(result: AnswerResult | None) -> list[Answer]:
    """Return the answers to mark: the best one, and others with a sufficient score."""
    answers = result.answers if result and result.answer else []
    return [answer for place, answer in enumerate(answers) if not place or answer.score >= LEAST_SCORE]


class AnswerPresenter(Presenter):
    """Shows answers where they stand."""

    about = "One question about one passage. The answer is a stretch of the passage, in its exact words, or none."
    empty = "no answer in the passage"
    names: Mapping[str, str] = MappingProxyType(
        {
            "context": "passage",
            "top_k": "answers",
            "max_answer_tokens": "longest answer",
            "min_precision": "least precision",
        }
    )
    attribute = "answer"

    def samples(self) -> Sequence[Sample]:
        """Return questions with their passages."""
        return samples()

    def asked(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return a question with its passage."""
        return {"context": "", **item}

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the best answer."""
        return ("", None) if result.answer is None else (result.answer.text, result.answer.score)

    def shown(self, item: Question | None, result: Any) -> Mapping[str, Any]:
        """Return the passage with its answers marked."""
        return {"pieces": mark_answers(item.context, likely(result)) if item and item.context else []}

    def call(self, item: Mapping[str, Any], more: Mapping[str, Any]) -> ItemCall:
        """Return the call that asks one question."""
        arguments = {**item, **{name: more[name] for name in ("model",) if name in more}, **more.get("options", {})}
        return ItemCall("/v1/answers", {**item, **more}, "ask", arguments, "result", ("print(result.answer)",))
