"""Webhooks: the dead letters, one delivery with its attempts, and redelivery."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.routes import deliveries as api_deliveries
from api.routes.deliveries import DeliveryId
from api.routes.webhook_secrets import list_webhook_secrets
from corelane.domain.api_keys import Scope
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import go_to
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import render
from corelane.store.webhook_secrets import WebhookSecrets

router = APIRouter(prefix=f"{CONSOLE}/webhooks", route_class=PageRoute)

#: Dead letters on a page.
PAGE_ENTRIES = 25

#: Most waiting deliveries, and most resting hosts, that are listed.
MOST_WAITING = 10


@router.get("")
async def show_webhooks(
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str | None, Query(max_length=140)] = None,
    find: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show the dead letters to an admin; if a delivery, a job or a batch is searched for, redirect to it."""
    if find := find.strip():
        page = {"evt": "webhooks", "batch": "batches"}.get(find.partition("_")[0], "jobs")
        return go_to(request, f"{page}/{quote(find, safe='')}")
    signing = await list_webhook_secrets(state, WebhookSecrets(state.link, caller.owner))
    shown: dict[str, Any] = {"dead": None, "after": after, "with_url": True, "signing": signing.data}
    if Scope.ADMIN in caller.scopes:
        outcomes, pending, dead, open_circuits = await state.deliveries.counts()
        shown["resting"] = await state.deliveries.resting(MOST_WAITING)
        shown["dead"] = await api_deliveries.list_dead_deliveries(state, caller, "dead", after, PAGE_ENTRIES)
        owner = None if state.jobs.sees_all(caller) else caller.owner
        waiting = await state.deliveries.waiting(MOST_WAITING, owner)
        shown["waiting"] = [api_deliveries.describe(each) for each in waiting]
        shown |= {"outcomes": outcomes, "pending": pending, "dead_count": dead, "open_circuits": open_circuits}
    return render(request, "webhooks.html", **shown)


@router.get("/{delivery_id}")
async def show_delivery(
    delivery_id: DeliveryId, request: Request, state: StateDep, caller: ReadCaller, did: str = ""
) -> Response:
    """Show one delivery and its attempts."""
    delivery = await api_deliveries.get_delivery(delivery_id, state, caller)
    return render(request, "delivery.html", delivery=delivery, did=did)


@router.post("/{delivery_id}/redeliver")
async def redeliver(delivery_id: DeliveryId, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Post an event again."""
    await api_deliveries.redeliver(delivery_id, state, caller)
    return go_to(request, f"webhooks/{delivery_id}", did="redelivered")
