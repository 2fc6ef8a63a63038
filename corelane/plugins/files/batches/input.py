"""The input of a batch: its lines become a plan and groups, by model and options. Each group becomes a job.

Both steps may be repeated. Reading uses new names for files and jobs each time, until the batch knows its plan.
Submitting uses the ids chosen while reading, until the batch is in progress.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cache
from typing import Any
from uuid import uuid4

from corelane.domain.batches import BatchError
from corelane.domain.jobs import Priority
from corelane.errors import InvalidInput
from corelane.plugins.files.batches.checking import Sorter
from corelane.plugins.files.batches.tools import PLANS, BatchTools
from corelane.plugins.files.store.batches import BatchRecord, Group
from corelane.store.jobs.submission import ItemFile, Submission
from corelane.store.link.link import VersionClosed
from corelane.tasks.forms import Predict, forms
from corelane.tasks.registry import DIALECTS, parse_options, task_named


class InputRefused(Exception):
    """The input makes the batch fail as a whole; ``plan`` has the error of each line, if all lines were read."""

    def __init__(self, errors: Sequence[BatchError], plan: str | None = None) -> None:
        super().__init__(errors[0].message)
        self.errors = errors
        self.plan = plan


async def read_input(tools: BatchTools, record: BatchRecord) -> dict[str, Any]:
    """Write plan and items; return the fields plan, lines, bad and groups. Raise InputRefused, NotFound or NotReady."""
    plan_name = f"{PLANS}{record.id}.{uuid4().hex}.plan"
    with ExitStack() as stack:
        plan = stack.enter_context(tools.writing(plan_name))
        sorter = Sorter(
            tools.settings, record.endpoint, lambda job: stack.enter_context(tools.writing(tools.items_name(job)))
        )
        loop, find, sorter.model = asyncio.get_running_loop(), tools.submitter.tasks.announced, record.model
        if isinstance(DIALECTS[record.endpoint], Predict):
            sorter.task_of = cache(lambda model: asyncio.run_coroutine_threadsafe(find(model), loop))  # errors, too
        async for block in sorter.blocks(tools.storage.read(record.input_file)):
            await asyncio.to_thread(plan.write, b"".join(line.encode() for line in block))
            await tools.renew_lease()
        if (refusal := sorter.refusal) is not None:
            raise InputRefused([BatchError(code=refusal[0], message=refusal[1])])
        groups = [asdict(group.finish()) for group in sorter.groups]
        await asyncio.to_thread(stack.close)
    await tools.renew_lease()  # a slow storage may take longer to complete the files than the lease lasts
    if sorter.bad == sorter.lines:
        raise InputRefused(sorter.errors, plan_name)
    return {"plan": plan_name, "lines": str(sorter.lines), "bad": str(sorter.bad), "groups": groups}


async def submit_groups(tools: BatchTools, record: BatchRecord, now_ms: int) -> tuple[Group, ...]:
    """Submit each group as a job, once; return the groups, with the errors of those that were refused.

    Raise NotReady before any worker has announced the default model; VersionClosed if a version stopped taking jobs in
    the meantime. In both cases the call may be repeated.
    """
    groups = []
    for place, group in enumerate(record.groups):
        if group.refused is None:
            try:
                await _submit(tools, record, place, group, now_ms)
            except VersionClosed:
                raise
            except InvalidInput as error:
                tools.item_files.delete(group.job)
                groups.append(replace(group, refused=(error.code, error.detail)))
                continue
        groups.append(group)
        await tools.renew_lease()
    return tuple(groups)


async def _submit(tools: BatchTools, record: BatchRecord, place: int, group: Group, now_ms: int) -> None:
    if await tools.jobs.get(group.job) is not None:
        return
    left_s = max(0.001, (record.expires_ms - now_ms) / 1000)
    options = parse_options(group.options.encode())
    head = forms(task_named(options.task)).head(
        model=group.model or await tools.submitter.tasks.default_of(options.task),
        options=options,
        priority=Priority.LOW,
        expires_in_s=left_s,
        metadata={"batch_id": record.id, "batch_group": str(place)},
    )
    admission = await tools.submitter.admit(head, record.owner, group.job)
    file = ItemFile(tools.items_name(group.job), group.items, group.tokens)
    submission = Submission(head, record.owner, file=file, id=group.job, request=record.origin)
    await tools.submitter.submit(submission, admission)
    tools.feed()
