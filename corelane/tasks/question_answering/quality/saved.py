"""Save the answers of a version as NDJSON: a head line, then one result a line in the order of the questions."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.errors import InvalidInput, SetupError
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.wire import AnswerResult

#: Name and version of the format.
SCHEMA = "corelane.answers/1"


def questions_hash(questions: Iterable[SquadQuestion]) -> str:
    """Return the SHA-256 of what was asked, in order: ids, questions and contexts."""
    digest = hashlib.sha256()
    for each in questions:
        digest.update(orjson.dumps([each.id, each.question, each.context]))
    return digest.hexdigest()


def save_answers(
    path: Path,
    questions: Sequence[SquadQuestion],
    results: Iterable[AnswerResult],
    version: str,
    options: Mapping[str, Any],
) -> None:
    """Write the answers of a version; raise SetupError if the file cannot be written."""
    head = {
        "schema": SCHEMA,
        "version": version,
        "options": options,
        "questions": questions_hash(questions),
        "created_at": datetime.now(UTC).isoformat(),
    }
    lines = [orjson.dumps(head), *(orjson.dumps(each.model_dump(mode="json")) for each in results)]
    try:
        path.write_bytes(b"\n".join(lines) + b"\n")
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror or error}") from None


def read_answers(
    path: Path, questions: Sequence[SquadQuestion], options: Mapping[str, Any]
) -> tuple[str, list[AnswerResult]]:
    """Return the version and its results; raise InvalidInput if the questions or options are different."""
    try:
        first, *lines = path.read_bytes().splitlines()
        head = orjson.loads(first)
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise InvalidInput(f"{path} holds no answers that `corelane eval --save` wrote")
        results = [AnswerResult.model_validate_json(line) for line in lines]
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, ValidationError) as error:
        # An empty file has no first line: that is a ValueError too.
        raise InvalidInput(f"{path} holds no answers that `corelane eval --save` wrote: {error}") from None
    if head.get("questions") != questions_hash(questions) or len(results) != len(questions):
        raise InvalidInput(f"{path} answers other questions: save it again with this file and the same --limit")
    if head.get("options") != dict(options):
        raise InvalidInput(f"{path} was asked with other options, {head.get('options')}: give the same ones")
    return str(head.get("version")), results
