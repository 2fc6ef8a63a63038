"""Receive webhooks, verified by the library of Standard Webhooks, and print each event once.

Take `pip install fastapi hypercorn standardwebhooks`, and the secret that signs as CORELANE_WEBHOOK_SECRET:

    python -m hypercorn receive_fastapi.py:app --bind 127.0.0.1:9000
"""

import os
from typing import Any

from fastapi import BackgroundTasks, FastAPI, Request, Response
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

app = FastAPI()
webhook = Webhook(os.environ["CORELANE_WEBHOOK_SECRET"])

#: The ids of events that came before. Keep yours in a database, for a day or two.
seen = set[str]()


@app.post("/")
async def receive(request: Request, background: BackgroundTasks) -> Response:
    """Answer 204 to what the service signed, 401 to anything else that is posted."""
    try:
        event = webhook.verify(await request.body(), dict(request.headers))
    except (WebhookVerificationError, ValueError) as error:  # ValueError: headers or a body that cannot be read
        return Response(f"{error}\n", 401)
    if request.headers["webhook-id"] not in seen:
        seen.add(request.headers["webhook-id"])
        background.add_task(handle, event)  # runs after the answer was sent
    return Response(status_code=204)


def handle(event: dict[str, Any]) -> None:
    """Print an event."""
    print(event["type"], event["data"]["id"], event["data"].get("status"), flush=True)
