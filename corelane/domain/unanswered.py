"""Results of items that have no answer, in stored form. Pure."""

from typing import Any

from corelane.domain.jobs import JobStatus


def failed_result(index: int, item_id: str | None, code: str, detail: str) -> dict[str, Any]:
    """Return a failed item's result in stored form."""
    return unanswered_result(index, item_id, JobStatus.FAILED) | {"error": {"code": code, "detail": detail}}


def unanswered_result(index: int, item_id: str | None, status: JobStatus) -> dict[str, Any]:
    """Return the result of an item that ended unanswered, in stored form."""
    return {
        "index": index,
        "id": item_id,
        "status": str(status),
        "answer": None,
        "answers": [],
        "no_answer_score": None,
        "windows": 0,
        "error": None,
    }
