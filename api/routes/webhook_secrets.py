"""Secrets that sign an owner's webhooks: listed without their values, made, rotated and removed."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.deps import Parts, PartsDep, ReadCaller, SubmitCaller, get_parts
from api.errors import documented
from corelane.domain.api_keys import OWNER_FORM, Caller
from corelane.domain.audit import AuditAction
from corelane.domain.webhook_secrets import SERVICE, NewWebhookSecret, Overlap, OwnedSecret, WebhookSecretList
from corelane.errors import InvalidInput
from corelane.store.webhook_secrets import WebhookSecrets

router = APIRouter(prefix="/v1/webhook-secrets", tags=["webhooks"], responses=documented(403, 404, 409, 422, 503))


async def get_owner(
    owner: Annotated[
        str | None,
        Query(description="Another owner's secrets: for keys of scope `admin`, where keys are checked."),
    ] = None,
) -> str | None:
    """Return the owner that a request names; raise InvalidInput for a text that names none."""
    if owner is not None and not OWNER_FORM.fullmatch(owner):
        raise InvalidInput("an owner has 1 to 64 letters, digits, `.`, `_` and `-`")
    return owner


OwnerDep = Annotated[str | None, Depends(get_owner)]


@router.get("")
async def list_webhook_secrets(parts: PartsDep, caller: ReadCaller, owner: OwnerDep = None) -> WebhookSecretList:
    """List what signs your webhooks now, the newest first, without values.

    `service` is the secret of the service: it signs alone where an owner has none of its own.
    """
    meant = parts.jobs.owner_meant(caller, owner)
    found = await WebhookSecrets([parts.link], meant).read()
    if parts.settings.webhook_secret is None:
        found = [each for each in found if each.id != SERVICE]
    elif not found:
        found = [OwnedSecret(SERVICE, None)]
    return WebhookSecretList(data=[each.describe() for each in found])


@router.post("", status_code=201)
async def create_webhook_secret(
    request: Request, body: Overlap, caller: SubmitCaller, owner: OwnerDep = None
) -> NewWebhookSecret:
    """Make the first secret of your own. Its value is in this answer, and never shown again.

    For `overlap_s` the service's secret signs your webhooks as well, then yours alone.
    """
    return await _make(request, body, caller, owner, AuditAction.SIGNING_CREATE)


@router.post("/rotate", status_code=201)
async def rotate_webhook_secret(
    request: Request, body: Overlap, caller: SubmitCaller, owner: OwnerDep = None
) -> NewWebhookSecret:
    """Make the next secret. Its value is in this answer, and never shown again.

    For `overlap_s` what signed until now signs as well, so receivers may change at any time; then it ends.
    """
    return await _make(request, body, caller, owner, AuditAction.SIGNING_ROTATE)


@router.delete("/{secret_id}", status_code=204)
async def remove_webhook_secret(secret_id: str, request: Request, caller: SubmitCaller, owner: OwnerDep = None) -> None:
    """End a secret at once. The newest can be removed only as the last one: then the service's secret signs again."""
    parts, meant = await _meant(request, caller, owner)
    await _secrets(request, parts, meant).remove(secret_id)
    await parts.audit.write(caller, AuditAction.SIGNING_REMOVE, secret_id, f"owner {meant}")


async def _make(
    request: Request, body: Overlap, caller: Caller, owner: str | None, action: AuditAction
) -> NewWebhookSecret:
    parts, meant = await _meant(request, caller, owner)
    made = await _secrets(request, parts, meant).add(body.overlap_s, is_rotation=action is AuditAction.SIGNING_ROTATE)
    await parts.audit.write(caller, action, made.id, f"owner {meant}; what signed before ends in {body.overlap_s} s")
    return made


async def _meant(request: Request, caller: Caller, owner: str | None) -> tuple[Parts, str]:
    parts = await get_parts(request)
    return parts, parts.jobs.owner_meant(caller, owner)


def _secrets(request: Request, parts: Parts, owner: str) -> WebhookSecrets:
    """Return an owner's secrets in all cells, the one that serves this request first."""
    others = [cell.link for cell in request.app.state.cells.values() if cell.link is not parts.link]
    return WebhookSecrets([parts.link, *others], owner)
