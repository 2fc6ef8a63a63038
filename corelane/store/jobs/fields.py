"""The fields of a submitted job's hash in Redis, beside those that Redis sets. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from corelane.domain.jobs import Item
from corelane.domain.options import ADDED_OPTIONS, Options
from corelane.store.jobs.records import PromiseRecord
from corelane.store.jobs.submission import Submission


def job_fields(submission: Submission, promise: PromiseRecord | None, digests: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the job's hash; those without a value are left out."""
    head, file, total = submission.head, submission.file, submission.total
    fields = {
        "total": total,
        "left": total,
        "owner": submission.owner,
        "priority": head.priority.rank,
        "options": orjson.dumps(_stored(head.options)),
        "metadata": orjson.dumps(head.metadata),
    }
    optional = {
        "promise": promise and promise.encode(),
        "reckoned": promise and promise.reckoned,
        "request_id": submission.request.request_id,
        "traceparent": submission.request.traceparent,
        "webhook_url": head.webhook and head.webhook.url,
        "webhook_events": head.webhook and ",".join(head.webhook.events),
        "labels": head.labels and orjson.dumps(unique(head.labels)),
        "asked": submission.asked or head.model,
        "keep_s": head.keep_s,
        "name": submission.name,
        "retry_of": submission.retry_of,
        "tell": int(submission.is_awaited and len(submission.items) == 1),
        "results_window": file and file.results_window,
        "digests": "".join(digests),
        "item_ids": digests and any(item.id for item in submission.items) and _ids(submission.items),
        "no_reuse": not head.reuse and 1,
    }
    return fields | present(optional)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value}


def unique(labels: Sequence[str]) -> list[str]:
    """Return labels in order, each once."""
    return list(dict.fromkeys(labels))


def _ids(items: Sequence[Item]) -> bytes:
    """Return the callers' own ids of items as they are stored."""
    return orjson.dumps([item.id for item in items])


def _stored(options: Options) -> dict[str, Any]:
    """Return options as they are stored: workers of the version before refuse those that they do not know."""
    return {
        name: value
        for name, value in vars(options).items()
        if name not in ADDED_OPTIONS or value != Options.model_fields[name].default
    }
