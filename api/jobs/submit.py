"""Taking in a job: checked, admitted, handed to the store once, waited for if asked to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from fastapi import Response

from api.deps import Parts
from api.jobs.present import describe
from api.middleware.request_id import ORIGIN
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.jobs import Item, Job, JobHead, Webhook
from corelane.domain.size_limits import check_contexts, check_item
from corelane.errors import (
    InvalidInput,
    JobExpired,
    NotCalibrated,
    NotReady,
    Overloaded,
    StoreUnavailable,
    TooLarge,
    UnknownModel,
    WebhookRefused,
)
from corelane.log import get_logger
from corelane.store.fleet import require_outlook
from corelane.store.jobs.admission import Admission
from corelane.store.jobs.idempotency import Held, Holder, Once
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import Submission, Upload
from corelane.store.link.surface import VersionClosed
from corelane.webhooks import check_address

log = get_logger(__name__)

#: A webhook's host name gets this long to resolve while its job is submitted, in seconds.
RESOLVE_S = 2.0


#: Times a request tries to make its job, while others make it and delete it again.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Making:
    """What a job comes of, besides its body: what may make it only once, its name, the job it retries."""

    once: Once | None = None
    name: str | None = None
    retry_of: str | None = None
    asked: str | None = None


async def only_once(
    parts: Parts, once: Once | None, response: Response, wait: float | None, submit: Callable[[], Awaitable[Job]]
) -> Job:
    """What ``submit`` makes, unless another request has made or is making it: then what that one made, as it stands."""
    if once is None:
        return await submit()
    holder = await parts.store.holder(once.key)
    for _ in range(ATTEMPTS):
        if holder is not None and (job := await replay(parts, once, holder, response, wait)) is not None:
            return job
        try:
            return await submit()
        except Held as held:
            holder = held.holder
    raise StoreUnavailable("the job of this request comes and goes; send it again")


async def find_made(parts: Parts, once: Once) -> Holder | None:
    """Who holds a key for good or with a job that is there; whoever asks for the same need not be taken in."""
    holder = await parts.store.holder(once.key)
    if holder is None or once.ttl_s > 0 or await parts.store.get(holder.subject) is not None:
        return holder
    return None


async def replay(parts: Parts, once: Once, holder: Holder, response: Response, wait: float | None) -> Job | None:
    """The job that the same request made before; None if it is gone and may be made again.

    Raises what the ``Once`` says if another request made it, JobExpired if it is gone for good.
    """
    record = await parts.store.get(holder.subject, parts.settings.inline_results)
    if record is None and once.ttl_s == 0:
        return None
    once.require_same(holder)
    if record is None:
        raise JobExpired(
            f"this Idempotency-Key stands for {holder.subject}, which was deleted or is kept no longer: use a new key"
        )
    response.headers["Idempotent-Replayed"] = "true"
    if wait is not None and not record.status.is_final:
        record = await parts.completions.wait(holder.subject, wait)
    return await present(parts, record, holder.subject, response, wait)


async def take_in(
    parts: Parts,
    job_id: str,
    head: JobHead,
    owner: str,
    response: Response,
    wait: float | None,
    *,
    items: Sequence[Item] = (),
    upload: Upload | None = None,
    making: Making = Making(),
) -> Job:
    """Admit a job and hand it in; once more if its version is closed in between, as when an alias moves.

    Raises Held if the making's ``once`` is held by another job.
    """

    async def attempt() -> Job:
        admission = await admit(parts, job_id, head, owner)
        submission = make_submission(job_id, admission, head, owner, items=items, upload=upload, making=making)
        return await hand_in(parts, submission, admission, response, wait)

    try:
        return await attempt()
    except VersionClosed:
        return await attempt()


async def take_in_upload(
    parts: Parts,
    job_id: str,
    head: JobHead,
    owner: str,
    response: Response,
    wait: float | None,
    upload: Upload,
    making: Making,
) -> Job:
    """The same for a job whose items are in a file, which goes if the job certainly does not come to be."""
    try:
        return await take_in(parts, job_id, head, owner, response, wait, upload=upload, making=making)
    except (InvalidInput, NotReady, Overloaded, Held):
        (parts.settings.files_root / upload.name).unlink(missing_ok=True)
        raise


async def admit(parts: Parts, job_id: str, head: JobHead, owner: str) -> Admission:
    """Look whether a job can be taken at all; raises WebhookRefused, UnknownModel, NotCalibrated, InvalidInput if it
    asks to be kept for too long, NotReady before any worker has announced the default model, or VersionNotReady if no
    core holds the version and none is about to.
    """
    if head.keep_s is not None and head.keep_s > parts.settings.results_ttl_s:
        raise InvalidInput(f"`keep_s` is at most {parts.settings.results_ttl_s} here (CORELANE_RESULTS_TTL_S)")
    if head.webhook is not None:
        await check_webhook(parts, head.webhook)
    key = job_id if head.sticky_key is None else f"{owner} {head.sticky_key}"
    admission = await parts.store.admit(head.model, key, owner)
    if admission.version is not None:
        if not admission.is_held:
            await require_outlook(parts.fleet, head.model, admission.version)
        if head.options.min_precision is not None and not await parts.fleet.is_calibrated(admission.version):
            raise NotCalibrated(
                f"{admission.version} is not calibrated: leave `min_precision` out, or have its operator run "
                "`corelane calibrate`"
            )
        return admission
    if head.model == DEFAULT_ALIAS:
        raise NotReady("no worker has announced a model yet; try again when /readyz says ready")
    raise UnknownModel(
        f"there is no model {head.model[:100]!r}, or it is being unloaded; GET /v1/models lists what can be asked"
    )


def make_submission(
    job_id: str,
    admission: Admission,
    head: JobHead,
    owner: str,
    *,
    items: Sequence[Item] = (),
    upload: Upload | None = None,
    making: Making = Making(),
) -> Submission:
    """A job as the store takes it."""
    return Submission(
        job_id,
        admission.version or "",
        head.options,
        metadata=head.metadata,
        webhook=head.webhook,
        priority=head.priority,
        expires_in_s=head.expires_in_s,
        refuse_if_late=head.refuse_if_late,
        owner=owner,
        contexts=head.contexts or {},
        items=items,
        upload=upload,
        labels=tuple(dict.fromkeys(head.labels)),
        asked=making.asked or head.model,
        keep_s=head.keep_s,
        name=making.name,
        retry_of=making.retry_of,
        once=making.once,
        origin=ORIGIN.get(),
    )


async def hand_in(
    parts: Parts, submission: Submission, admission: Admission, response: Response, wait: float | None
) -> Job:
    """Have the store keep a job, wait for it if asked to, and say how it stands."""
    record: JobRecord | None
    keeping = keep_job(parts, submission, admission)
    if wait is None:
        record = await keeping
    else:
        record = await parts.completions.wait(submission.id, wait, keeping)
    return await present(parts, record, submission.id, response, wait, is_held=admission.is_held)


async def present(
    parts: Parts,
    record: JobRecord | None,
    job_id: str,
    response: Response,
    wait: float | None,
    *,
    is_held: bool = False,
) -> Job:
    """A job that was handed in: 200 if it is final, else 202, and where to go on from there."""
    if wait is not None:
        response.headers["Preference-Applied"] = f"wait={wait:g}"
        response.headers["Vary"] = "Prefer"
    job = await describe(parts, record, job_id, is_held=is_held)
    response.status_code = 200 if job.status.is_final else 202
    response.headers["Location"] = job.urls.self
    if not job.status.is_final:
        response.headers["Retry-After"] = "1"
    return job


async def keep_job(parts: Parts, submission: Submission, admission: Admission) -> JobRecord:
    """Have the store keep a job, and tell of it."""
    with parts.metrics.submit_seconds.time():
        record = await parts.store.submit(submission, admission)
    parts.metrics.jobs_submitted.inc()
    parts.metrics.items_submitted.inc(record.total)
    log.info("job_submitted", job_id=record.id, items=record.total, version=record.version, owner=submission.owner)
    return record


def check_sizes(parts: Parts, items: Sequence[Item], contexts: Mapping[str, str]) -> None:
    """Refuse a job over the limits; raises TooLarge naming the setting."""
    settings = parts.settings
    if len(items) > settings.max_items:
        raise TooLarge(
            f"the job has {len(items):,} items, at most {settings.max_items:,} are taken; "
            "send it as lines (application/x-ndjson) or as several jobs, or raise CORELANE_MAX_ITEMS"
        )
    for index, item in enumerate(items):
        check_item(settings, f"item {index}" if len(items) > 1 else "", item)
    check_contexts(settings, contexts)


async def check_webhook(parts: Parts, webhook: Webhook) -> None:
    """Refuse a webhook that could never be delivered; raises WebhookRefused."""
    if parts.settings.webhook_secret is None:
        raise WebhookRefused("this service signs no webhooks: its operator has not set CORELANE_WEBHOOK_SECRET")
    try:
        await asyncio.wait_for(asyncio.to_thread(check_address, parts.settings, webhook.url), RESOLVE_S)
    except TimeoutError:
        log.info("webhook_host_slow")
