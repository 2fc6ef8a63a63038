"""The way in: a batch's input is read once, line by line, into a plan and one file of items for each group of lines
that ask the same of the same model; then each group becomes a job, sent as lines.

Reading may be repeated until the batch knows its plan: each time files and jobs have names of their own. Submitting may
be repeated until it is in progress: ids of jobs were chosen before.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, BinaryIO
from uuid import uuid4

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.batch_lines import GoodLine, LineChecker, PlannedLine, Sorter, read_lines
from corelane.domain.batches import BatchError
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Options, Priority
from corelane.errors import CorelaneError, NotCalibrated, NotReady, UnknownModel, VersionNotReady
from corelane.settings.faults import reach
from corelane.store.batches import BatchRecord, Group
from corelane.store.feeding import encode_line
from corelane.store.fleet import require_outlook
from corelane.store.jobs.store import Submission, Upload
from corelane.store.link.surface import VersionClosed
from workers.batches.context import Desk

#: Lines between two looks at the turn.
LINES_PER_LOOK = 500

#: Lines that a batch that fails as a whole is told of; its error file has them all.
MAX_ERRORS = 20


class InputRefused(Exception):
    """The input speaks against the batch as a whole; ``plan`` says it of each line, if it came so far."""

    def __init__(self, errors: Sequence[BatchError], plan: str | None = None) -> None:
        super().__init__(errors[0].message)
        self.errors = errors
        self.plan = plan


async def read_input(desk: Desk, record: BatchRecord) -> dict[str, Any]:
    """Write the plan and the files of items; what the batch is to know of them: the plan's name, lines in all, bad
    ones, the groups of the good.

    Raises InputRefused, NotFound if the input file is gone, or what storage and disk raise.
    """
    settings = desk.settings
    settings.files_root.mkdir(parents=True, exist_ok=True)
    plan_name = f"{record.id}.{uuid4().hex}.plan"
    told: list[BatchError] = []
    bad = lines = 0
    with ExitStack() as stack:
        plan = stack.enter_context((settings.files_root / plan_name).open("xb"))
        sorter, files = Sorter(LineChecker(settings)), GroupFiles(desk, record, stack)
        for raw in read_lines(desk.storage.read(record.input_file), settings.max_body_bytes):
            lines += 1
            if lines > settings.max_file_lines:
                sentence = f"the file has more than {settings.max_file_lines:,} lines; send several batches"
                raise InputRefused([BatchError(code="too_many_lines", message=sentence)])
            line, good = sorter.sort(raw)
            plan.write(line.encode())
            if good is not None and line.group is not None:
                files.add(line.group, good)
            else:
                bad += 1
                told += [_told(line)] if len(told) < MAX_ERRORS else []
            if lines % LINES_PER_LOOK == 0:
                await desk.stay()
    reach("batch.planned", settings.armed_faults)
    if lines == 0:
        raise InputRefused([BatchError(code="empty_file", message="the file has no lines")])
    if bad == lines:
        raise InputRefused(told, plan_name)
    groups = [asdict(group) for group in files.groups]
    return {"plan": plan_name, "lines": str(lines), "bad": str(bad), "groups": groups}


class GroupFiles:
    """The items of each group, in a file of its own."""

    def __init__(self, desk: Desk, record: BatchRecord, stack: ExitStack) -> None:
        self._desk = desk
        self._record = record
        self._stack = stack
        self._files: list[BinaryIO] = []
        self.groups: list[Group] = []

    def add(self, place: int, line: GoodLine) -> None:
        """One more item of a group, or the first of the next one."""
        if place == len(self.groups):
            group = Group(new_job_id(), line.model, line.options, 0, 0)
            path = self._desk.items_path(self._record, group)
            self._files.append(self._stack.enter_context(path.open("xb")))
            self.groups.append(group)
        group = self.groups[place]
        self._files[place].write(encode_line(line.row, line.tokens))
        self.groups[place] = replace(group, items=group.items + 1, tokens=group.tokens + line.tokens)


def _told(line: PlannedLine) -> BatchError:
    code, message = line.error or ("internal", "")
    return BatchError(code=code, message=message, line=line.number)


async def submit_groups(desk: Desk, record: BatchRecord, now_ms: int) -> tuple[Group, ...]:
    """Submit each group as a job, once; the groups, with what speaks against those that cannot be.

    Raises NotReady before any worker has announced the default model, VersionClosed if a version stopped taking jobs
    meanwhile: submit again.
    """
    groups = []
    for place, group in enumerate(record.groups):
        if group.refused is None:
            try:
                await _submit(desk, record, place, group, now_ms)
            except VersionClosed:
                raise
            except (UnknownModel, NotCalibrated, VersionNotReady) as error:
                desk.items_path(record, group).unlink(missing_ok=True)
                groups.append(replace(group, refused=(error.code, error.detail)))
                continue
        groups.append(group)
        await desk.stay()
    return tuple(groups)


async def _submit(desk: Desk, record: BatchRecord, place: int, group: Group, now_ms: int) -> None:
    if await desk.jobs.get(group.job) is not None:
        return
    options = Options.model_validate_json(group.options)
    admission = await desk.jobs.admit(group.model, group.job, record.owner)
    if admission.version is None:
        raise _unknown(group.model)
    if not admission.is_held:
        await require_outlook(desk.fleet, group.model, admission.version)
    if options.min_precision is not None and not await desk.fleet.is_calibrated(admission.version):
        raise NotCalibrated(f"{admission.version} is not calibrated: leave `min_precision` out")
    path = desk.settings.files_root / f"{group.job}.jsonl"
    if (items := desk.items_path(record, group)).exists():
        items.replace(path)
    submission = Submission(
        group.job,
        admission.version,
        options,
        metadata={"batch_id": record.id, "batch_group": str(place)},
        labels=(f"batch:{record.id}",),
        asked=group.model,
        priority=Priority.LOW,
        expires_in_s=max(0.001, (record.expires_ms - now_ms) / 1000),
        owner=record.owner,
        upload=Upload(path.name, group.items, group.tokens),
        origin=record.origin,
    )
    await desk.jobs.submit(submission, admission)
    reach("batch.submitted", desk.settings.armed_faults)


def _unknown(model: str) -> CorelaneError:
    if model == DEFAULT_ALIAS:
        return NotReady("no worker has announced a model yet")
    return UnknownModel(
        f"there is no model {model[:100]!r}, or it is being unloaded; GET /v1/models lists what there is"
    )
