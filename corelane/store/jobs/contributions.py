"""Contributions to the step that submits a job: fields of its hash, arguments of the call, commands of the same trip.

The functions here are for jobs whose items or results stand elsewhere. Plugins may add more, see ``JobStore``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.domain.contexts import digest_in
from corelane.store.jobs.fields import present
from corelane.store.jobs.submission import Submission
from corelane.store.link.library import Command


@dataclass(slots=True)
class SubmitStep:
    """The step that submits a job, as far as it does not depend on how the job is cut into slices."""

    #: What is written to its hash.
    fields: dict[str, Any]
    #: Further arguments of the call ``submit``, for hooks of the Lua library.
    arguments: dict[str, Any]
    #: Commands that Redis runs before, in the same trip.
    before: list[Command] = field(default_factory=list)


#: Adds to the step of a submission.
Contributor = Callable[[Submission, SubmitStep], None]


def add_references(submission: Submission, step: SubmitStep) -> None:
    """Have a job's items read from a URL, and its results written to one."""
    head, is_read = submission.head, submission.input_url is not None
    step.fields |= present(
        {
            "input_url": submission.input_url,
            "context_ids": is_read and head.contexts and orjson.dumps(list(head.contexts)),
            "output_url": head.output_url,
            "invalid_items": is_read and head.invalid_items,
        }
    )
    step.arguments["input"] = is_read or None


def add_stored_contexts(submission: Submission, step: SubmitStep) -> None:
    """Have a job keep the stored contexts that its items name."""
    if stored := [digest_in(each) for each in submission.known]:
        step.fields["stored"] = " ".join(stored)
        step.arguments |= {"stored": stored, "is_retry": submission.retry_of is not None}


CONTRIBUTORS: tuple[Contributor, ...] = (add_references, add_stored_contexts)
