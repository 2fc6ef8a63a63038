"""The submitter: the only way to make a job, for the API's routes and for file batches. It knows nothing of HTTP.

A submission is checked, admitted and handed to the store. If its key or name (``Once``) is taken, the job of the first
request is returned. If its version closes meanwhile, as when an alias moves, it is admitted again.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.dispatch import SLICE_ITEMS, SLICE_TOKENS, measure, spread_slices
from corelane.domain.ids import cell_of
from corelane.domain.job_requests import count_rows, require_few_rows
from corelane.domain.jobs import INLINE_RESULTS, Item, JobHead, TaskOptions
from corelane.errors import (
    CorelaneError,
    InvalidInput,
    JobExpired,
    NotReady,
    Overloaded,
    StoreUnavailable,
    TooLarge,
    UnknownModel,
    UrlRefused,
    VersionNotReady,
    WebhookRefused,
)
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.store.fleet import Fleet
from corelane.store.jobs.idempotency import Held, Holder, Once
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Admission, Assumed, Submission
from corelane.store.link.link import VersionClosed
from corelane.store.plugin import StorePlugin
from corelane.submitting.model_tasks import ModelTasks
from corelane.tasks.registry import task_named
from corelane.tasks.text import check_text
from corelane.tracing import Attributes, Tracer
from corelane.webhooks.addresses import check_receiver

Made = TypeVar("Made")

#: Most attempts of one request to make its job: its version may close, or other requests make and delete the job.
ATTEMPTS = 3

#: A job of more rows than this is checked and estimated in a thread: 10,000 take up to 50 ms.
MANY_ROWS = 10_000

#: The longest time after which a caller is asked to come back, in seconds.
MAX_RETRY_AFTER_S = 3600

#: Why a webhook is refused that would have no signature.
UNSIGNED = (
    "nothing signs your webhooks: create a secret of your own (POST /v1/webhook-secrets), or have the operator set "
    "CORELANE_WEBHOOK_SECRET"
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job of a submission: made now, or by an earlier request with the same ``Once``."""

    record: JobRecord
    is_replayed: bool = False
    #: Whether a living core is known to hold its version.
    is_held: bool = False


class Submitter:
    """Makes jobs from submissions."""

    def __init__(self, store: JobStore, fleet: Fleet, settings: Settings, tracer: Tracer | None = None) -> None:
        self._store = store
        self._fleet = fleet
        self._settings = settings
        self._tracer = tracer
        #: What jobs for a model and a task were admitted as, if the next one of one item may assume the same.
        self._admitted: dict[tuple[str, str], Admission] = {}
        self.tasks = ModelTasks(store, fleet)

    async def submit(self, submission: Submission, admission: Admission | None = None) -> Submitted:
        """Make a job, or return the one that the same request made before. Admit it first if ``admission`` is None.

        Raise the errors of ``admit``, TooLarge, Overloaded, the error of its ``Once`` if another request holds the key,
        JobExpired, or StoreUnavailable. Nothing is written then.
        """
        if self._tracer is None:
            return await self._submit_once(submission, admission)
        return await self._traced(self._tracer, submission, admission)

    async def _traced(self, tracer: Tracer, submission: Submission, admission: Admission | None) -> Submitted:
        """Submit as a step of the request's trace. The job keeps the step as the parent of everything that follows."""
        facts: Attributes = {
            "messaging.system": "corelane",
            "messaging.operation.name": "submit",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": submission.file.items if submission.file else len(submission.items),
        }
        step = tracer.begin("submit", "producer", submission.request.traceparent, facts)
        found: dict[str, str | bool] = {}
        failure: str | None = "unforeseen"
        try:
            request = replace(submission.request, traceparent=step.traceparent)
            submitted = await self._submit_once(replace(submission, request=request), admission)
            record, failure = submitted.record, None
            found = {"messaging.destination.name": record.version, "corelane.is_replayed": submitted.is_replayed}
            found["corelane.job.id"] = found["messaging.message.id"] = record.id
            return submitted
        except CorelaneError as error:
            failure = error.code
            raise
        finally:
            step.end(found, failure)

    async def _submit_once(self, submission: Submission, admission: Admission | None) -> Submitted:
        once = submission.once
        if cell_of(submission.id) != self._settings.cell:
            raise ValueError(f"{submission.id} is no id of service {self._settings.cell}")
        if submission.retry_of is None:
            await self.beside_others(submission, self.check_sizes)
            if submission.head.options.form is not None:
                await self._check_files(submission)
        if submission.input_url is not None:
            await self._check_url("input_url", submission.input_url, submission.owner)
        holder = None if once is None else await self._store.holder(once.key)
        failure: Exception | None = None
        admission = admission or self._assumed(submission)
        for _ in range(ATTEMPTS):
            if once is not None and holder is not None and (made := await self._replay(once, holder)) is not None:
                return made
            if admission is None:
                admit = self._admit if isinstance(failure, VersionClosed) else self.admit
                admission = await admit(submission.head, submission.owner, submission.id)
            try:
                return Submitted(
                    await self._submit(submission, admission), is_held=admission.is_held and admission.pause is None
                )
            except Held as held:
                holder, failure = held.holder, None
            except VersionClosed as error:
                admission, failure = None, error
        raise failure or StoreUnavailable(
            "The job was created and deleted while this request was being handled. Send the request again."
        )

    async def replay(self, once: Once) -> Submitted | None:
        """Return the job that the same request made before; None if there is none, or it may be made again."""
        holder = await self._store.holder(once.key)
        return None if holder is None else await self._replay(once, holder)

    async def is_made(self, once: Once) -> bool:
        """Return whether an earlier request made a job under this key, and the key is still held."""
        holder = await self._store.holder(once.key)
        return holder is not None and (once.ttl_s > 0 or await self._store.get(holder.subject) is not None)

    async def admit(self, head: JobHead, owner: str, job: str) -> Admission:
        """Check whether a job can be accepted, before its items are known.

        Raise WebhookRefused, UrlRefused, UnknownModel, WrongTask, InvalidInput, NotReady or VersionNotReady.
        """
        settings = self._settings
        if head.keep_s is not None and head.keep_s > settings.results_ttl_s:
            raise InvalidInput(f"`keep_s` is at most {settings.results_ttl_s} here (CORELANE_RESULTS_TTL_S)")
        if head.webhook is not None:
            await self.check_webhook(head.webhook.url, owner)
        if head.output_url is not None:
            await self._check_url("output_url", head.output_url, owner)
        return await self._admit(head, owner, job)

    async def check_webhook(self, url: str, owner: str) -> None:
        """Raise WebhookRefused for a webhook that nothing would sign, or whose address may not be reached."""
        if self._settings.webhook_secret is None and not await self._store.signs_webhooks(owner):
            raise WebhookRefused(UNSIGNED)
        await check_receiver(self._settings, url)

    async def _check_url(self, name: str, url: str, owner: str) -> None:
        """Let the plugin for inputs and outputs check a URL; raise UrlRefused if no plugin does."""
        for plugin in installed(StorePlugin):
            if await plugin.check_url(self._settings, self._store, name, url, owner):
                return
        raise UrlRefused(f"this service takes no `{name}`")

    async def _check_files(self, submission: Submission) -> None:
        """Let the plugin for files check those that items name; raise InvalidInput if it refuses one, or there is none.

        If bad items fail alone, so do these: the core that runs an item checks its files again.
        """
        head, items = submission.head, submission.items
        if head.invalid_items == "fail":
            return
        names = {name: f"item {index}: " for index, item in enumerate(items) for name in item.files}
        for plugin in installed(StorePlugin) if names else ():
            if await plugin.check_files(self._settings, self._store, names, submission.owner):
                return
        if names:
            raise UrlRefused("this service takes no files in items")

    def likely_default(self, task: str) -> str | None:
        """Return the default model if a job of this task may assume that it has the task, without a trip."""
        return DEFAULT_ALIAS if (DEFAULT_ALIAS, task) in self._admitted else None

    def _assumed(self, submission: Submission) -> Admission | None:
        """Return what a job of one item may assume, so that its submission is its only trip; None if it may not."""
        head, task = submission.head, task_named(submission.head.options.task)
        asks_more = head.webhook is not None or head.keep_s is not None or head.output_url is not None
        if len(submission.items) != 1 or asks_more or task.depends_on_version(head.options):
            return None
        return self._admitted.get((head.model, task.name))

    async def _admit(self, head: JobHead, owner: str, job: str) -> Admission:
        self._admitted.pop((head.model, head.options.task), None)
        key = job if head.sticky_key is None else f"{owner} {head.sticky_key}"
        admission = await self._store.admit(head.model, key, owner)
        version = admission.version
        if version is None:
            if head.model == DEFAULT_ALIAS:
                raise NotReady("no worker has announced a model yet; try again when /readyz says ready")
            raise UnknownModel(await self.tasks.no_model(head.model))
        if not admission.is_held:
            outlook = await self._fleet.outlook(version)
            if outlook is not None and not outlook.is_expected:
                if head.model == DEFAULT_ALIAS:
                    raise NotReady(f"{outlook.reason}; try again when /readyz says ready")
                raise VersionNotReady(
                    f"{outlook.reason}; load it (`corelane models load {version}`), or ask for another model"
                )
        await self.tasks.check(head.model, version, head.options.task)
        task = task_named(head.options.task)
        if task.depends_on_version(head.options):
            task.check_version(head.options, version, await self._fleet.summary(version))
        if admission.is_alone and admission.is_held and admission.pause is None:
            self._admitted[head.model, task.name] = replace(admission, is_assumed=True)
        return admission

    async def _replay(self, once: Once, holder: Holder) -> Submitted | None:
        record = await self._store.get(holder.subject, INLINE_RESULTS)
        if record is None and once.ttl_s == 0:
            return None
        once.require_same(holder)
        if record is None:
            raise JobExpired(
                f"this Idempotency-Key stands for {holder.subject}, which was deleted or is kept no longer: "
                "use a new key"
            )
        await self._store.confirm(record.id)
        return Submitted(record, is_replayed=True)

    async def _submit(self, submission: Submission, admission: Admission) -> JobRecord:
        costs = await self.beside_others(submission, self._costs)
        slices = spread_slices(costs, SLICE_ITEMS, SLICE_TOKENS, admission.idle)
        assumed: Assumed | None = None
        if admission.is_assumed:
            most, own_most = self._settings.max_outstanding_tokens, self._settings.max_owner_tokens
            assumed = {"model": submission.head.model, "tokens": sum(costs), "most": most, "own_most": own_most}
        elif submission.file is None:
            await self.require_room(admission, sum(costs))
        return await self._store.submit(submission, admission.version or "", slices, assumed)

    def _costs(self, submission: Submission) -> list[int]:
        """Estimate the items, up to the first one that is too much work together with those before."""
        estimator = Estimator(submission.head.shared_texts, submission.head.options)
        costs, left = [], self._settings.max_outstanding_tokens
        for item in submission.items:
            costs.append(cost := estimator.tokens(item))
            left -= cost
            if left < 0:
                break
        return costs

    @staticmethod
    async def beside_others(submission: Submission, work: Callable[[Submission], Made]) -> Made:
        """Do work on all items of a job; in a thread if they are many, so that other requests go on meanwhile."""
        rows_by, shared = rows_of(submission.head.options)
        rows = count_rows(submission.items, rows_by, shared) if rows_by else len(submission.items)
        is_long = rows + len(submission.head.shared_texts) > MANY_ROWS
        return await asyncio.to_thread(work, submission) if is_long else work(submission)

    def check_sizes(self, submission: Submission) -> None:
        """Refuse a job over the limits; raise TooLarge naming the setting."""
        items, options = submission.items, submission.head.options
        require_few_items(self._settings, len(items))
        if (rows := rows_of(options))[0]:
            require_few_rows(items, *rows)
        task = task_named(options.task)
        for index, item in enumerate(items):
            place = f"item {index}: " if len(items) > 1 else ""
            task.check(self._settings, place, item)
            task.check_options(options, place, item)
        check_texts(self._settings, submission.head.shared_texts)

    async def require_room(self, admission: Admission, tokens: int) -> None:
        """Raise TooLarge for a job that would not fit even alone, Overloaded for one that does not fit now."""
        most, own_most = self._settings.max_outstanding_tokens, self._settings.max_owner_tokens
        if tokens > min(most, own_most):
            name = "CORELANE_MAX_OWNER_TOKENS" if own_most <= most else "CORELANE_MAX_OUTSTANDING_TOKENS"
            raise TooLarge(
                f"the job is about {tokens:,} tokens of work, and {min(most, own_most):,} may wait: send it as lines "
                "(application/x-ndjson), which wait in a file and are not bounded, or as several jobs one after the "
                f"other, or have the operator raise {name}"
            )
        excess, own_excess = admission.outstanding + tokens - most, admission.own + tokens - own_most
        if excess <= 0 and own_excess <= 0:
            return
        if own_excess > excess:
            bound = f"{own_most:,} tokens may wait for one API key and this job would pass that by {own_excess:,}"
        else:
            bound = f"{most:,} tokens may wait and this job would pass that by {excess:,}"
        drained = drained_before(excess, own_excess, admission)
        retry_after_s = max(1, min(MAX_RETRY_AFTER_S, math.ceil(drained / await self._store.drain_rate())))
        raise Overloaded(f"{bound}; nothing was kept, come back in {retry_after_s} s", retry_after_s)


def drained_before(excess: int, own_excess: int, admission: Admission) -> float:
    """Estimate how many tokens of all owners are drained before a job fits; it exceeds its bounds by these tokens.

    Owners share the cores, so an owner's part of what is drained is about its share of what waits.
    """
    return max(excess, own_excess * admission.outstanding / max(1, admission.own))


def require_few_items(settings: Settings, items: int) -> None:
    """Raise TooLarge if a job has more items than allowed."""
    if items > settings.max_items:
        raise TooLarge(
            f"the job has {items:,} items, at most {settings.max_items:,} are taken; send it as lines "
            "(application/x-ndjson) or as several jobs, or raise CORELANE_MAX_ITEMS"
        )


def rows_of(options: TaskOptions) -> tuple[str, int]:
    """Return the field that gives an item several rows (empty if none), and the rows of an item without it."""
    rows_by = task_named(options.task).rows_by
    return rows_by, len(getattr(options, rows_by, None) or "1")


def check_texts(settings: Settings, texts: Mapping[str, str]) -> None:
    """Raise TooLarge for a shared text that is too long, naming it and the setting."""
    for text_id, text in texts.items():
        check_text(settings, "", f"the shared text {text_id!r}", text)


class Estimator:
    """Estimates what the items of one job cost, before a tokenizer reads them. Each shared text is measured once."""

    def __init__(self, texts: Mapping[str, str], options: TaskOptions) -> None:
        self._shared = {text_id: measure(text) for text_id, text in texts.items()}
        self._options = options
        self._task = task_named(options.task)

    def tokens(self, item: Item) -> int:
        """Estimate the tokens of an item, whether its text is its own or shared."""
        beside, text, text_id = self._task.parts(item)
        if text is not None:
            return self._task.tokens(beside, text, self._options)
        return self._task.tokens_of(beside, self._shared[text_id or ""], self._options)
