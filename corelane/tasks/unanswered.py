"""Results of items that have no output, in stored form. Pure."""

from typing import Any

from corelane.domain.jobs import JobStatus
from corelane.tasks.registry import task_named


def failed_result(task: str, index: int, item_id: str | None, code: str, detail: str) -> dict[str, Any]:
    """Return a failed item's result in stored form."""
    return unanswered_result(task, index, item_id, JobStatus.FAILED) | {"error": {"code": code, "detail": detail}}


def unanswered_result(task: str, index: int, item_id: str | None, status: JobStatus) -> dict[str, Any]:
    """Return the result of an item that ended without an output, in stored form."""
    return {
        "index": index,
        "id": item_id,
        "status": str(status),
        **task_named(task).nothing,
        "windows": 0,
        "error": None,
    }
