"""Calls of operators: read usage, pause, change secrets."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from corelane.client.endpoints import JSON, Call, of, read_list, read_nothing, read_object
from corelane.client.wire import dump_body
from corelane.domain.pauses import Pause, PauseKind, PauseList
from corelane.domain.usage import Group, UsageReport


def usage(
    first: date | str | None = None,
    last: date | str | None = None,
    *,
    group_by: Sequence[Group] | Group = (),
    owner: str | None = None,
) -> Call[UsageReport]:
    """Return the usage between the days ``first`` and ``last``, by default this month's, grouped by ``group_by``.

    The report covers your own work. Keys of scope admin may name another ``owner``, or all owners by `*`.
    """
    groups = [group_by] if isinstance(group_by, str) else list(group_by)
    given = {"from": first and str(first), "to": last and str(last), "group_by": groups, "owner": owner}
    params = {name: value for name, value in given.items() if value}
    return Call("GET", "/v1/usage", of(UsageReport), params=params)


def webhook_secrets(owner: str | None = None) -> Call[list[dict[str, Any]]]:
    """List the secrets that sign your webhooks, newest first, without values; or another ``owner``'s (scope admin)."""
    return Call("GET", "/v1/webhook-secrets", read_list, params=_of_owner(owner))


def create_webhook_secret(
    overlap_s: int | None = None, *, rotate: bool = False, owner: str | None = None
) -> Call[dict[str, Any]]:
    """Make the first secret that signs your webhooks, or with ``rotate`` the next one; tried once.

    ``secret`` has its value, which is shown only now. What signed until now also signs for ``overlap_s``, a day by
    default.
    """
    route = "/v1/webhook-secrets/rotate" if rotate else "/v1/webhook-secrets"
    body = dump_body({} if overlap_s is None else {"overlap_s": overlap_s})
    return Call("POST", route, read_object, params=_of_owner(owner), headers=JSON, content=body, tried_once=True)


def remove_webhook_secret(secret_id: str, *, owner: str | None = None) -> Call[None]:
    """End a secret at once; tried once. If you have none left, the service's secret signs."""
    path = {"secret_id": secret_id}
    return Call("DELETE", "/v1/webhook-secrets/{secret_id}", read_nothing, path, _of_owner(owner), tried_once=True)


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
