"""The audit after a chaos run, from outside: what the API answers, what stands in Redis and what the receiver of
webhooks got, nothing else.

Every job that was accepted is final; each of its items has one result, its own, in order; the status and the counts
agree with the results; its end was told once, and delivered under one id with the same bytes; no counter is off, no key
was left behind, and the metrics tell what the store holds.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2

from corelane.client import Client
from corelane.domain.jobs import DEFAULT_TASK, Job, JobStatus, Result
from corelane.errors import CorelaneError, ServiceError, WorkerLost
from corelane.store import keys
from corelane.tasks.registry import task_named
from tests.chaos.hooks import Event, Hooks
from tests.chaos.load import KEYS, Load, Submitted, read_results
from tests.chaos.watch import FINAL, Sight, job_of, stored_indexes
from tests.tools.invariants import check_invariants

#: Whatever was accepted is final this long after the last fault, or it is lost, in seconds.
SETTLE_S = 180

#: What is left over for a moment (bells, empty claims) is gone this long after the last job, in seconds.
TIDY_S = 20

#: Problems of one kind that are spelled out.
SPELLED_OUT = 5

#: Keys that are empty, and so not there, when no work is left.
ONLY_WITH_WORK = re.compile(r"cl:(lane|lanes|line|refs|returned|claim|in|contexts|open|expiring|leases|due|feeds)\b")

#: Hashes and sorted sets whose numbers all come to nothing with the last item.
COUNTERS = ("cl:waiting", "cl:held", "cl:owed", "cl:unfed", "cl:jobs")

#: Keys that belong to Celery and kombu.
CELERYS = re.compile(r".*\.reply\.celery\.pidbox$|_kombu\.|unacked|core\.|keeper|deliveries|celery")


@dataclass
class Findings:
    """What an audit saw; ``problems`` is empty if all is well."""

    jobs: int = 0
    items: int = 0
    lost: int = 0
    repeated_results: int = 0
    changed_results: int = 0
    repeated_events: int = 0
    missing_events: int = 0
    #: Webhooks: events that came, requests beyond one for each, and events that never came.
    events: int = 0
    repeated_posts: int = 0
    missing_posts: int = 0
    worker_lost: int = 0
    #: Results that do not say the caller's id of their item (see ``may_be_nameless``).
    nameless: int = 0
    #: Jobs in Redis that nobody was told of: the API died, or was cut off, after it had taken them in.
    untold_jobs: int = 0
    #: Jobs refused with an error that says nothing was kept, and kept all the same.
    refused_yet_kept: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _told: Counter[str] = field(default_factory=Counter)

    def problem(self, kind: str, text: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= SPELLED_OUT:
            self.problems.append(f"{kind}: {text}")
        elif self._told[kind] == SPELLED_OUT + 1:
            self.problems.append(f"{kind}: and more")


class Audited(Protocol):
    """What an audit looks at: where the API is, and its Redis."""

    url: str

    @property
    def redis(self) -> Any:
        """Its Redis, past any proxy."""

    def client(self, key: str | None = None, **options: Any) -> Client:
        """Return a client."""


def audit(
    fleet: Audited,
    load: Load,
    sight: Sight,
    settle_s: float = SETTLE_S,
    tidy_s: float = TIDY_S,
    *,
    hooks: Hooks | None = None,
    strange_ends: Iterable[str] = (),
) -> Findings:
    """Wait until all that was accepted is final and told, then look at everything twice over."""
    findings = Findings()
    with ExitStack() as stack, httpx2.Client(base_url=fleet.url, timeout=30) as http, fleet.redis.client() as raw:
        clients = {key: stack.enter_context(fleet.client(key, patience_s=0, timeout_s=10)) for key in KEYS}
        wait_for_the_end(clients, load.accepted, settle_s)
        if hooks is not None:
            wait_for_hooks(raw, hooks, settle_s)
        left_over = wait_until_tidy(raw, tidy_s)
        for job in load.accepted:
            examine_job(findings, clients[job.key], http, raw, job)
        examine_untold(findings, raw, load)
        examine_events(findings, raw, sight)
        examine_writes(findings, raw, sight)
        if hooks is not None:
            examine_hooks(findings, raw, hooks)
        for text in strange_ends:
            findings.problem("ended", text)
        for outcome, count in load.unforeseen.items():
            findings.problem("unforeseen", f"{outcome}, {count} times")
        for text in left_over:
            findings.problem("left over", text)
        for text in wait_until_told_truly(raw, tidy_s):
            findings.problem("metrics", text)
    return findings


def wait_for_the_end(clients: Mapping[str, Client], jobs: Iterable[Submitted], seconds: float) -> None:
    """Until every job is final, or time is up; what is not final then is found by the examination."""
    deadline = time.monotonic() + seconds
    for job in jobs:
        while time.monotonic() < deadline:
            try:
                wait_s = min(10.0, max(0.0, deadline - time.monotonic()))
                if clients[job.key].get(job.id, wait_s=wait_s).status.is_final:
                    break
            except ServiceError as error:
                if error.status == 404:
                    break
                time.sleep(0.2)
            except CorelaneError:
                time.sleep(0.2)


def wait_for_hooks(raw: Any, hooks: Hooks, seconds: float) -> None:
    """Until the end of every job that has a webhook was taken by the receiver, or time is up."""
    deadline = time.monotonic() + seconds
    awaited = set(hooked_jobs(raw))
    while time.monotonic() < deadline and not awaited <= delivered_jobs(hooks).keys():
        time.sleep(1)


def hooked_jobs(raw: Any) -> dict[str, str]:
    """Return final jobs whose end is told to a webhook, and their status."""
    found = {}
    for key in raw.scan_iter("cl:job:*", count=1000):
        status, webhook = raw.hmget(key, "status", "webhook_url")
        if webhook and status in FINAL:
            found[job_of(key)] = status
    return found


def delivered_jobs(hooks: Hooks) -> dict[str, list[tuple[str, Event]]]:
    """Events that the receiver took, with their ids, by job."""
    found: dict[str, list[tuple[str, Event]]] = {}
    for number, event in hooks.events().items():
        if event.answered:
            found.setdefault(event.told[0], []).append((number, event))
    return found


def examine_hooks(findings: Findings, raw: Any, hooks: Hooks) -> None:
    """Every end was delivered: under one id, with the same bytes each time, and with the job's status."""
    delivered = delivered_jobs(hooks)
    for number, event in hooks.events().items():
        findings.events += 1
        findings.repeated_posts += event.posts - 1
        if len(event.bodies) > 1:
            findings.problem("webhook", f"{number} was posted with {len(event.bodies)} bodies")
    for job, status in hooked_jobs(raw).items():
        told = delivered.get(job, [])
        if not told:
            findings.missing_posts += 1
            finished = raw.hget(f"cl:job:{{{job}}}", "finished_ms")
            findings.problem("webhook", f"the end of {job}, {status} since {finished}, was never delivered")
        elif len(told) > 1:
            findings.problem("webhook", f"the end of {job} was delivered as {[number for number, _ in told]}")
        elif told[0][1].told[2] != status:
            findings.problem("webhook", f"{job} is {status}, its webhook said {told[0][1].told[2]}")


def wait_until_tidy(raw: Any, seconds: float) -> list[str]:
    """Return the keys that are left over in Redis without work, once they no longer change or time is up."""
    deadline = time.monotonic() + seconds
    while left_over := look_for_leftovers(raw):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return left_over


def wait_until_told_truly(raw: Any, seconds: float) -> list[str]:
    """Return what the metrics tell wrongly, once they are right or time is up: heartbeats come and go meanwhile."""
    deadline = time.monotonic() + seconds
    while wrong := check_invariants(raw):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return wrong


def look_for_leftovers(raw: Any) -> list[str]:
    """Keys that should not be there, and counters that are not at zero."""
    known = [(re.compile(re.escape(key).replace("%s", ".+")), key.kind) for key in keys.all_keys().values()]
    found = []
    for key in raw.scan_iter(count=1000):
        if CELERYS.match(key):
            continue
        if raw.type(key) not in ("none", *(kind for pattern, kind in known if pattern.fullmatch(key))):
            found.append(f"{key} is not a documented key, or not of its type")
        elif ONLY_WITH_WORK.match(key) and not is_meant_to_stay(raw, key):
            found.append(f"{key} is still there: {show(raw, key)}")
    for key in COUNTERS:
        off = {name: count for name, count in raw.hgetall(key).items() if int(count) != 0}
        if off:
            found.append(f"{key} is not at zero: {off}")
    return found


def is_meant_to_stay(raw: Any, key: str) -> bool:
    """Payloads outlive a job of which not all was answered, and one that never was, for a while."""
    if not key.startswith(("cl:in:", "cl:contexts:")) or raw.ttl(key) <= 0:
        return False
    status, failed = raw.hmget(f"cl:job:{{{job_of(key)}}}", "status", "failed")
    return status in (None, "canceled", "expired") or int(failed or 0) > 0


def show(raw: Any, key: str) -> str:
    """Describe a key's content in a few words."""
    readers = {"hash": raw.hgetall, "set": raw.smembers, "string": raw.get}
    ranges = {"list": raw.lrange, "zset": raw.zrange}
    kind = str(raw.type(key))
    content = readers[kind](key) if kind in readers else ranges[kind](key, 0, 5) if kind in ranges else kind
    return f"{content}, ttl {raw.ttl(key)}"[:300]


def examine_job(findings: Findings, client: Client, http: httpx2.Client, raw: Any, submitted: Submitted) -> None:
    """One accepted job: final, whole, in order, itself."""
    findings.jobs += 1
    findings.items += submitted.total
    try:
        job, results = client.get(submitted.id), read_results(http, submitted)
    except (CorelaneError, httpx2.HTTPError) as error:
        findings.lost += submitted.total
        findings.problem("lost", f"{submitted.id} was accepted: {error}")
        return
    submitted.look(results)
    findings.statuses[job.status] += 1
    findings.worker_lost += sum(result.error is not None and result.error.code == WorkerLost.code for result in results)
    findings.nameless += sum(result.id is None for result in results)
    if submitted.changed:
        findings.changed_results += submitted.changed
        findings.problem("changed", f"{submitted.changed} results of {submitted.id} changed after they were seen")
    stored = Counter(stored_indexes(raw, submitted.id))
    if repeated := sum(count - 1 for count in stored.values() if count > 1):
        findings.repeated_results += repeated
        findings.problem("repeated", f"{repeated} results of {submitted.id} are stored twice")
    if not job.status.is_final or len(results) < submitted.total:
        findings.lost += submitted.total - len(results)
        findings.problem(
            "lost",
            f"{submitted.id} ({submitted.form}, {submitted.fate}) is {job.status}, has {len(results)} results of "
            f"{submitted.total}; {describe(raw, submitted.id)}",
        )
        return
    for fault in [*faults_of_status(job, submitted), *faults_of_results(job, results, submitted)]:
        findings.problem("wrong", f"{submitted.id} ({submitted.form}, {submitted.fate}): {fault}")


def describe(raw: Any, job: str) -> str:
    """All that Redis holds of a job that did not end as it should."""
    record = raw.hgetall(f"cl:job:{{{job}}}")
    for long in ("options", "metadata", "cuts"):
        record.pop(long, None)
    missing = sorted(set(range(int(record.get("total", 0)))) - set(stored_indexes(raw, job)))
    holders = [key for key in raw.scan_iter("cl:claim:*", count=1000) if any(job in f for f in raw.hkeys(key))]
    lanes = [
        key
        for kind in ("cl:lane:*", "cl:refs:*")
        for key in raw.scan_iter(kind, count=1000)
        if any(job in ref for ref in raw.lrange(key, 0, -1))
    ]
    return f"record {record}, missing {missing[:10]}, payloads {raw.exists(f'cl:in:{{{job}}}')}, in {holders + lanes}"


def faults_of_status(job: Job, submitted: Submitted) -> list[str]:
    """List contradictions in a final job's status and counts."""
    counts = job.counts
    found = []
    allowed = {
        "plain": {"succeeded", "failed"},
        "canceled": {"succeeded", "failed", "canceled"},
        "expiring": {"succeeded", "failed", "expired"},
    }[submitted.fate]
    if job.status not in allowed:
        found.append(f"it is {job.status}")
    if (counts.done, counts.total) != (submitted.total, submitted.total):
        found.append(f"{counts} do not come to {submitted.total}")
    if job.metadata != {"token": submitted.token}:
        found.append(f"metadata {job.metadata}")
    return found


def faults_of_results(job: Job, results: list[Result], submitted: Submitted) -> list[str]:
    """List contradictions in the results of a final job."""
    found = []
    if len(results) > submitted.total:
        found.append(f"{len(results)} results for {submitted.total} items")
    tally = Counter(result.status for result in results)
    counts = {status: getattr(job.counts, status) for status in FINAL}
    if any(tally[JobStatus(status)] != count for status, count in counts.items()):
        found.append(f"results {dict(tally)}, counts {counts}")
    for index, result in enumerate(results):
        is_nameless = result.id is None and may_be_nameless(result, submitted)
        if result.index != index or not (is_nameless or result.id == submitted.item_id(index)):
            found.append(f"item {index} has the result of {result.index}, {result.id!r}")
        if not isinstance(result, task_named(submitted.task).result) or job.task != submitted.task:
            found.append(f"item {index} of {job.task} has a {type(result).__name__}, not one of {submitted.task}")
        elif submitted.task == DEFAULT_TASK and result.answer is not None:
            answer, context = result.answer, submitted.context(index)
            if context[answer.start : answer.end] != answer.text:
                found.append(f"item {index} is answered {answer.text!r}, which is not in {context!r}")
        if result.error is not None and result.error.code != WorkerLost.code:
            found.append(f"item {index} failed: {result.error}")
    return found


def may_be_nameless(result: Result, submitted: Submitted) -> bool:
    """Items of a job sent as lines whose end came before they were fed: their ids stand in a file that is gone."""
    return submitted.form == "lines" and result.status in ("canceled", "expired")


def examine_untold(findings: Findings, raw: Any, load: Load) -> None:
    """Jobs in Redis that no submitter knows: final like all others."""
    known = {job.id for job in load.accepted}
    refused = set(load.refused)
    for key in raw.scan_iter("cl:job:*", count=1000):
        job = job_of(key)
        if job in known:
            continue
        findings.untold_jobs += 1
        status, metadata = raw.hmget(key, "status", "metadata")
        if status not in FINAL:
            findings.problem("untold", f"{job} is {status}: {describe(raw, job)}")
        if any(f'"{token}"' in (metadata or "") for token in refused):
            findings.refused_yet_kept += 1


def examine_events(findings: Findings, raw: Any, sight: Sight) -> None:
    """One event for each job that is there, of its status."""
    jobs = {job_of(key): raw.hget(key, "status") for key in raw.scan_iter("cl:job:*", count=1000)}
    for job, status in jobs.items():
        told = sight.events.get(job, [])
        if len(told) > 1:
            findings.repeated_events += len(told) - 1
            findings.problem("event", f"the end of {job} was told {len(told)} times: {told}")
        elif status in FINAL and told != [status]:
            findings.missing_events += 1
            findings.problem("event", f"{job} is {status}, its events say {told}")
    for job in sight.events.keys() - jobs.keys():
        findings.problem("event", f"the end of {job} was told, and it is not there")


def examine_writes(findings: Findings, raw: Any, sight: Sight) -> None:
    """No field of any job's results was written more than once."""
    for job, writes in sight.writes.items():
        fields = raw.hlen(f"cl:out:{{{job}}}")
        if writes > fields:
            findings.changed_results += writes - fields
            findings.problem("overwritten", f"{writes} writes to the {fields} stored results of {job}")
