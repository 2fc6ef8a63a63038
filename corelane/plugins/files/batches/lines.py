"""The outcomes of a batch's lines, as lines of its output file and its error file. Pure."""

from typing import Any

import orjson

from corelane.plugins.files.batches.checking import PlannedLine


def answered(batch: str, line: PlannedLine, result: dict[str, Any]) -> bytes:
    """Return a line of the output file: the result as ``/v1/answers`` gives it, of a job of one item."""
    response = {"status_code": 200, "request_id": _request_id(batch, line), "body": result | {"index": 0}}
    return _outcome(batch, line, response, None)


def not_answered(batch: str, line: PlannedLine, code: str, message: str) -> bytes:
    """Return a line of the error file."""
    return _outcome(batch, line, None, {"code": code, "message": message})


def _outcome(batch: str, line: PlannedLine, response: dict[str, Any] | None, error: dict[str, str] | None) -> bytes:
    outcome = {
        "id": _request_id(batch, line),
        "custom_id": line.custom_id,
        "line": line.number,
        "response": response,
        "error": error,
    }
    return orjson.dumps(outcome, option=orjson.OPT_APPEND_NEWLINE)


def _request_id(batch: str, line: PlannedLine) -> str:
    """Return the id of a line, the same each time its outcome is written."""
    return f"batch_req_{batch.removeprefix('batch_')}_{line.number}"
