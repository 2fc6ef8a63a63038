"""Calls of operators: retry or cancel many jobs, list failed items, read usage, pause, change secrets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Unpack

from corelane.client.endpoints import (
    JSON,
    Call,
    JobFilters,
    filter_params,
    of,
    page_params,
    read_list,
    read_nothing,
    read_object,
)
from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange, Iteration
from corelane.client.wire import dump_body
from corelane.domain.bulk import BulkAction, BulkReason, BulkResult
from corelane.domain.failed_items import FailedItem, FailedItemList, FailureGroup, FailureGroups
from corelane.domain.pauses import Pause, PauseKind, PauseList
from corelane.domain.usage import Group, UsageReport


def bulk(
    service: ServiceProtocol, action: BulkAction | str, *, dry_run: bool = False, **filters: Unpack[JobFilters]
) -> Exchange[BulkResult]:
    """Retry or cancel every job that all filters select, step by step; return the total of what was done.

    With ``dry_run`` nothing is changed. Repeating is safe: no job is retried twice.
    """
    action, after = BulkAction(action), None
    done = BulkResult(action=action, dry_run=dry_run, matched=0, done=0, skipped=[], jobs=[], has_more=False, next=None)
    skipped: Counter[str] = Counter()
    details: dict[str, str] = {}
    while True:
        step = yield from service.call(bulk_step(action, filters, dry_run, after))
        done.matched += step.matched
        done.done += step.done
        done.jobs += step.jobs
        for reason in step.skipped:
            skipped[reason.code] += reason.count
            details.setdefault(reason.code, reason.detail)
        after = step.next
        if not step.has_more or after is None:
            break
    done.skipped = [BulkReason(code=code, detail=details[code], count=count) for code, count in skipped.most_common()]
    return done


def usage(
    first: date | str | None = None,
    last: date | str | None = None,
    *,
    group_by: Sequence[Group] | Group = (),
    owner: str | None = None,
) -> Call[UsageReport]:
    """Return the time and cost of work between two days, by default of this month, grouped by ``group_by``.

    It covers your own work. Keys of scope admin may name another ``owner``, or all with `*`.
    """
    groups = [group_by] if isinstance(group_by, str) else list(group_by)
    given = {"from": first and str(first), "to": last and str(last), "group_by": groups, "owner": owner}
    params = {name: value for name, value in given.items() if value}
    return Call("GET", "/v1/usage", of(UsageReport), params=params)


def webhook_secrets(owner: str | None = None) -> Call[list[dict[str, Any]]]:
    """List the secrets that sign your webhooks, newest first, without values; or another ``owner``'s (scope admin)."""
    return Call("GET", "/v1/webhook-secrets", read_list, params=_of_owner(owner))


def create_webhook_secret(overlap_s: int | None = None, *, owner: str | None = None) -> Call[dict[str, Any]]:
    """Make the first secret that signs your webhooks; tried once. ``secret`` has its value, which is shown only now.

    The service's secret also signs for ``overlap_s``, a day by default.
    """
    route, body = "/v1/webhook-secrets", _overlap(overlap_s)
    return Call("POST", route, read_object, params=_of_owner(owner), headers=JSON, content=body, tried_once=True)


def rotate_webhook_secret(overlap_s: int | None = None, *, owner: str | None = None) -> Call[dict[str, Any]]:
    """Make the next secret; tried once. The current secrets also sign for ``overlap_s``, and then end."""
    route, body = "/v1/webhook-secrets/rotate", _overlap(overlap_s)
    return Call("POST", route, read_object, params=_of_owner(owner), headers=JSON, content=body, tried_once=True)


def remove_webhook_secret(secret_id: str, *, owner: str | None = None) -> Call[None]:
    """End a secret at once; tried once. If you have none left, the service's secret signs."""
    path = {"secret_id": secret_id}
    return Call("DELETE", "/v1/webhook-secrets/{secret_id}", read_nothing, path, _of_owner(owner), tried_once=True)


def _overlap(overlap_s: int | None) -> bytes:
    return dump_body({} if overlap_s is None else {"overlap_s": overlap_s})


def _of_owner(owner: str | None) -> dict[str, str]:
    return {"owner": owner} if owner else {}


def pause(kind: PauseKind | str, name: str) -> Call[Pause]:
    """Stop a model's version, or an owner from taking new work (keys with scope `admin`); returns the pause.

    Work in flight is finished. New jobs are accepted and wait.
    """
    return Call("PUT", "/v1/pauses/{kind}/{name}", of(Pause), {"kind": str(kind), "name": name})


def resume(kind: PauseKind | str, name: str) -> Call[None]:
    """Let a model's version, or an owner take work again."""
    return Call("DELETE", "/v1/pauses/{kind}/{name}", read_nothing, {"kind": str(kind), "name": name})


def pauses() -> Call[list[Pause]]:
    """List what is paused, by whom and since when."""
    return Call("GET", "/v1/pauses", lambda body: of(PauseList)(body).data)


def failed_items(
    service: ServiceProtocol, *, code: str | None = None, limit: int | None = None, **filters: Unpack[JobFilters]
) -> Iteration[FailedItem]:
    """Iterate over the failed items of the jobs that all filters select, newest job first, ``limit`` at most.

    With a ``code``, only items that failed with this error.
    """
    return service.pages(partial(failed_items_page, filters, code), limit)


def failure_groups(service: ServiceProtocol, **filters: Unpack[JobFilters]) -> Exchange[list[FailureGroup]]:
    """Count the failed items of the jobs that all filters select, by error code, the most frequent first."""
    return (yield from service.call(failure_counts(filters))).data


def bulk_step(action: BulkAction, filters: JobFilters, dry_run: bool, after: str | None) -> Call[BulkResult]:
    """Retry or cancel the next jobs that all filters select."""
    given: Mapping[str, Any] = filters
    wanted = {name: _plain(name, value) for name, value in given.items()}
    body = {"action": action.value, "filter": wanted, "dry_run": dry_run} | ({"after": after} if after else {})
    return Call("POST", "/v1/jobs/bulk", of(BulkResult), headers=JSON, content=dump_body(body))


def failed_items_page(filters: JobFilters, code: str | None, after: str | None, limit: int) -> Call[FailedItemList]:
    """List the next items that failed."""
    params = filter_params(filters) | ({"code": code} if code else {}) | page_params(after, limit)
    return Call("GET", "/v1/failed-items", of(FailedItemList), params=params)


def failure_counts(filters: JobFilters) -> Call[FailureGroups]:
    """Count the items that failed, by error code."""
    return Call("GET", "/v1/failed-items/codes", of(FailureGroups), params=filter_params(filters))


def _plain(name: str, value: Any) -> Any:
    """Return a filter's value in the form of the JSON body; one id or status is a list of one."""
    if isinstance(value, datetime):
        return value.isoformat()
    if name in ("id", "status"):
        return [str(each) for each in ([value] if isinstance(value, str) else value)]
    return value
