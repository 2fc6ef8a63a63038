"""The fields of a submitted job's hash in Redis, beside those that Redis sets. Pure."""

from collections.abc import Sequence
from typing import Any

import orjson

from corelane.domain.contexts import digest_in
from corelane.domain.jobs import ADDED_OPTIONS, Item, Options
from corelane.store.jobs.records import PromiseRecord
from corelane.store.jobs.submission import Submission


def job_fields(
    submission: Submission, labels: list[str], promise: PromiseRecord | None, digests: Sequence[str]
) -> dict[str, Any]:
    """Return the fields of the job's hash; those without a value are left out."""
    head, file = submission.head, submission.file
    fields = {
        "owner": submission.owner,
        "priority": head.priority.rank,
        "options": orjson.dumps(_stored(head.options)),
        "metadata": orjson.dumps(head.metadata),
    }
    optional = {
        "promise": promise and promise.encode(),
        "reckoned": promise and promise.reckoned,
        "input_url": submission.input_url,
        "context_ids": submission.input_url and head.contexts and orjson.dumps(list(head.contexts)),
        "output_url": head.output_url,
        "request_id": submission.request.request_id,
        "traceparent": submission.request.traceparent,
        "webhook_url": head.webhook and head.webhook.url,
        "webhook_events": head.webhook and ",".join(head.webhook.events),
        "labels": labels and orjson.dumps(labels),
        "asked": submission.asked or head.model,
        "keep_s": head.keep_s,
        "name": submission.name,
        "retry_of": submission.retry_of,
        "tell": int(submission.is_awaited and len(submission.items) == 1),
        "results_window": file and file.results_window,
        "digests": "".join(digests),
        "item_ids": digests and any(item.id for item in submission.items) and _ids(submission.items),
        "no_reuse": not head.reuse and 1,
        "invalid_items": submission.input_url and head.invalid_items,
        "stored": submission.known and " ".join(digest_in(each) for each in submission.known),
    }
    return fields | {name: value for name, value in optional.items() if value}


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
