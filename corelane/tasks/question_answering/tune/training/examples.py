"""Questions to learn from: SQuAD-format files or JSONL, read and checked completely before training starts. Pure.

An answer is a literal span: ``context[start:end] == text``. Otherwise the file is refused. Every fault is named with
its line, up to a limit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from corelane.errors import InvalidInput
from corelane.tasks.question_answering.squad import entries, read_unzipped, what_is_wrong

#: Most faults that a refusal lists; it counts the others.
MOST_LISTED = 20

#: Characters of a text that a fault shows.
SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Example:
    """A question about a passage, with the bounds of its answers in characters, if any, and the article's title."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[int, int], ...]
    title: str = ""

    @property
    def gold(self) -> tuple[str, ...]:
        """The texts of the answers."""
        return tuple(self.context[start:end] for start, end in self.answers)

    @property
    def group(self) -> str:
        """What must not be on both sides of a split: the article, or the passage if there is no title."""
        return self.title or self.context


class Faulty(ValueError):
    """An entry that cannot be used for training, and why."""


#: An entry of the file: its place, and its fields.
Entry = tuple[str, Mapping[str, Any]]


def read_examples(path: Path) -> list[Example]:
    """Return the examples of a file; raise InvalidInput listing what is wrong, SetupError if it cannot be read."""
    content = read_unzipped(path)
    document = _parse(content)
    try:
        found = list(_lines(content) if document is None else entries(document))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} is not in SQuAD's layout: {what_is_wrong(error)}") from None
    examples: list[Example] = []
    faults: list[tuple[str, str]] = []
    for place, entry in found:
        try:
            examples.append(make_example(entry, f"{path.name}#{len(examples)}"))
        except Faulty as fault:
            faults.append((place if document is None else _place_of(content, place, entry), str(fault)))
    if faults:
        raise InvalidInput(complaint(path.name, faults, len(found)))
    if not examples:
        raise InvalidInput(f"{path} has no questions")
    return examples


def complaint(name: str, faults: Sequence[tuple[str, str]], questions: int) -> str:
    """Return the refusal of a file: each fault on its own line, up to a limit."""
    listed = "".join(f"\n  {place}: {fault}" for place, fault in faults[:MOST_LISTED])
    more = f"\n  and {len(faults) - MOST_LISTED:,} more" if len(faults) > MOST_LISTED else ""
    return f"{len(faults):,} of the {questions:,} questions of {name} cannot be learnt from:{listed}{more}"


def make_example(entry: Mapping[str, Any], id: str) -> Example:
    """Return an entry as an example; raise Faulty with the reason. ``id`` is used if the entry has none."""
    if not entry:
        raise Faulty("it is no JSON object with question, context and answers")
    question, context = _text(entry, "question"), _text(entry, "context")
    answers = tuple(dict.fromkeys(_span(context, *answer) for answer in _answers(entry)))
    if entry.get("is_impossible") is True and answers:
        raise Faulty("it is marked is_impossible and has answers")
    if entry.get("is_impossible") is False and not answers:
        raise Faulty("it has no answer; mark it is_impossible if the passage does not answer it")
    return Example(str(entry.get("id", id)), question, context, answers, str(entry.get("title") or ""))


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Faulty(f"it has no {name}")
    return value


def _answers(entry: Mapping[str, Any]) -> Iterator[tuple[object, object]]:
    """Yield text and offset of each answer: SQuAD's list, the table that `datasets` writes, or a single one."""
    answers = entry.get("answers")
    if answers is None and "answer" in entry:
        answers = [{"text": entry["answer"], "answer_start": entry.get("answer_start")}] if entry["answer"] else []
    if isinstance(answers, Mapping):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise Faulty("`answers` needs `text` and `answer_start`, lists of the same length")
        yield from zip(texts, starts, strict=True)
    elif isinstance(answers, list):
        for answer in answers:
            if not isinstance(answer, Mapping):
                raise Faulty("an answer is not an object")
            yield answer.get("text"), answer.get("answer_start")
    else:
        raise Faulty("it has no `answers`; give an empty list if the passage does not answer it")


def _span(context: str, text: object, start: object) -> tuple[int, int]:
    """Return the bounds of an answer without the white space around it."""
    if not isinstance(text, str) or not text.strip():
        raise Faulty("an answer has no text")
    if not isinstance(start, int) or isinstance(start, bool):
        raise Faulty(f"the answer {_short(text)} has no answer_start")
    there = context[start : start + len(text)] if start >= 0 else ""
    if there != text:
        known = context.find(text)
        instead = f"; it is at {known}" if known >= 0 else "; the passage does not have it"
        raise Faulty(f"the answer {_short(text)} is not at {start}, where {_short(there)} stands{instead}")
    first = start + len(text) - len(text.lstrip())
    return first, first + len(text.strip())


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…")


def _parse(content: bytes) -> Mapping[str, Any] | None:
    """Return a document in SQuAD's layout; None if the content is lines."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and "data" in document else None


def _lines(content: bytes) -> Iterator[Entry]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            entry = None
        # A line that is no object has no fields, and is refused for that.
        yield f"line {number}", entry if isinstance(entry, dict) else {}


def _place_of(content: bytes, place: str, entry: Mapping[str, Any]) -> str:
    """Return the place of an entry in a document, with its line if its id is found in the text."""
    if "id" not in entry:
        return place
    written = re.search(rb'"id"\s*:\s*' + re.escape(orjson.dumps(entry["id"])), content)
    above = 0 if written is None else content.count(b"\n", 0, written.start())
    line = "" if written is None else f"line {above + 1}, "
    return f"{line}{place}, id {entry['id']}"


@dataclass(frozen=True, slots=True)
class ExampleSplit:
    """The examples of each training file, and the development part. ``dropped`` counts examples in neither."""

    train: list[list[Example]]
    dev: list[Example]
    dropped: int


def split_examples(
    files: Sequence[Sequence[Example]], dev: Sequence[Example], set_aside: Iterable[str], share: float
) -> ExampleSplit:
    """Set whole groups aside for development, and drop training examples that share a group or passage with it.

    ``set_aside`` names groups of the first file by title. Without ``set_aside`` and ``dev``, every n-th group of the
    first file is taken, about ``share`` of all groups.
    """
    wanted = {str(title) for title in set_aside}
    groups = list(dict.fromkeys(each.group for each in files[0]))
    if absent := wanted - set(groups):
        raise InvalidInput(f"the first file has no article {sorted(absent)[0]!r} to set aside")
    if not wanted and not dev:
        if len(groups) < 2:
            raise InvalidInput("all questions are of one article or passage: give a development file with --dev")
        wanted = set(groups[:: max(2, round(1 / share))]) if share > 0 else set()
    chosen = [*dev, *(each for each in files[0] if each.group in wanted)]
    taken = {each.group for each in chosen} | {each.context for each in chosen}
    train = [[each for each in file if each.group not in taken and each.context not in taken] for file in files]
    dropped = sum(map(len, files)) - sum(map(len, train)) - (len(chosen) - len(dev))
    if not train[0]:
        raise InvalidInput("nothing is left to train on: every question shares its article with the development part")
    return ExampleSplit(train, chosen, dropped)


def squad_layout(examples: Iterable[Example]) -> dict[str, Any]:
    """Return examples as a document in SQuAD's v2.0 layout."""
    articles: dict[str, dict[str, list[Example]]] = {}
    for each in examples:
        articles.setdefault(each.title, {}).setdefault(each.context, []).append(each)
    data = [
        {
            "title": title,
            "paragraphs": [
                {"context": context, "qas": [_question(each) for each in asked]} for context, asked in passages.items()
            ],
        }
        for title, passages in articles.items()
    ]
    return {"version": "v2.0", "data": data}


def _question(example: Example) -> dict[str, Any]:
    answers = [{"text": example.context[start:end], "answer_start": start} for start, end in example.answers]
    return {"id": example.id, "question": example.question, "answers": answers, "is_impossible": not answers}
