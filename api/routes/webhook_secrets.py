"""Secrets that sign an owner's webhooks: listed without their values, made, rotated and removed."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.deps import AS_READER, StateDep, SubmitCaller, audit, get_caller
from api.errors import documented
from corelane.domain.api_keys import OWNER_FORM, Caller
from corelane.domain.webhook_secrets import SERVICE, NewWebhookSecret, Overlap, OwnedSecret, WebhookSecretList
from corelane.errors import InvalidInput
from corelane.store.webhook_secrets import WebhookSecrets

router = APIRouter(prefix="/v1/webhook-secrets", tags=["webhooks"], responses=documented(403, 404, 409, 422, 503))


async def get_secrets(
    state: StateDep,
    caller: Annotated[Caller, Depends(get_caller)],
    owner: Annotated[
        str | None, Query(description="Another owner's secrets: for keys of scope `admin`, where keys are checked.")
    ] = None,
) -> WebhookSecrets:
    """Return the secrets of the caller, or of the owner whom the request names."""
    if owner is not None and not OWNER_FORM.fullmatch(owner):
        raise InvalidInput("an owner has 1 to 64 letters, digits, `.`, `_` and `-`")
    return WebhookSecrets(state.link, state.jobs.owner_meant(caller, owner))


SecretsDep = Annotated[WebhookSecrets, Depends(get_secrets)]


@router.get("", dependencies=[AS_READER])
async def list_webhook_secrets(state: StateDep, secrets: SecretsDep) -> WebhookSecretList:
    """List what signs your webhooks now, the newest first, without values.

    `service` is the secret of the service: it signs alone where an owner has none of its own.
    """
    found = await secrets.read()
    if state.settings.webhook_secret is None:
        found = [each for each in found if each.id != SERVICE]
    elif not found:
        found = [OwnedSecret(SERVICE, None)]
    return WebhookSecretList(data=[each.describe() for each in found])


@router.post("", status_code=201)
async def create_webhook_secret(body: Overlap, secrets: SecretsDep, caller: SubmitCaller) -> NewWebhookSecret:
    """Make the first secret of your own. Its value is in this response, and never shown again.

    For `overlap_s` the service's secret signs your webhooks as well, then yours alone.
    """
    return await _make(body, secrets, caller, is_rotation=False)


@router.post("/rotate", status_code=201)
async def rotate_webhook_secret(body: Overlap, secrets: SecretsDep, caller: SubmitCaller) -> NewWebhookSecret:
    """Make the next secret. Its value is in this response, and never shown again.

    For `overlap_s` the secrets that signed until now sign as well, then they end. Receivers may change meanwhile.
    """
    return await _make(body, secrets, caller, is_rotation=True)


@router.delete("/{secret_id}", status_code=204)
async def remove_webhook_secret(secret_id: str, secrets: SecretsDep, caller: SubmitCaller) -> None:
    """End a secret at once. The newest can be removed only as the last one: then the service's secret signs again."""
    await secrets.remove(secret_id)
    audit(caller, "webhook_secret.remove", secret_id, f"owner {secrets.owner}")


async def _make(body: Overlap, secrets: WebhookSecrets, caller: Caller, *, is_rotation: bool) -> NewWebhookSecret:
    made = await secrets.add(body.overlap_s, is_rotation=is_rotation)
    detail = f"owner {secrets.owner}; what signed before ends in {body.overlap_s} s"
    audit(caller, f"webhook_secret.{'rotate' if is_rotation else 'create'}", made.id, detail)
    return made
