"""The answer to what was asked of several cells."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import Scope

from api.cells.calls import Query, Reply, json_reply
from api.cells.merging.exposition import expositions
from api.cells.merging.shows import merged
from api.cells.ways import Way
from api.routes.fleet import ModelInfo, choose_model
from api.routes.usage import CSV, as_csv
from corelane.domain.usage import UsageRow

#: Names the cells that an answer lacks.
MISSING = b"corelane-cells-missing"


def answer_of(way: Way, replies: Mapping[str, Reply], query: Query, missing: Sequence[str], scope: Scope) -> Reply:
    """Return one answer; a refusal of one cell is that of all, and cells that are away are left out and named.

    Raise NotFound for a model that no cell has.
    """
    found = {cell: reply for cell, reply in replies.items() if reply.status < 300}
    refused = [reply for reply in replies.values() if not reply.is_away and reply.status >= 300]
    if refused or not found:
        return (refused or list(replies.values()))[0]
    away = [*missing, *(cell for cell in replies if cell not in found)]
    named = [(MISSING, ",".join(sorted(away)).encode())] if away else []
    if way.shows == "metrics":
        text = expositions({cell: reply.body.decode() for cell, reply in found.items()})
        return text_reply(text, CONTENT_TYPE_LATEST, named)
    value = merged(way.shows, {cell: reply.json() for cell, reply in found.items()}, query, away)
    if way.shows == "model":
        models = [ModelInfo.model_validate(model) for model in value["data"]]
        value = choose_model(models, way.name).model_dump(mode="json")
    elif way.shows == "usage" and dict(query).get("format") == "csv":
        return text_reply(as_csv([UsageRow.model_validate(row) for row in value["data"]]), CSV, named)
    elif way.shows == "jobs" and value["next"] is not None:
        following = urlencode([*((name, given) for name, given in query if name != "after"), ("after", value["next"])])
        named.append((b"link", f'<{scope["path"]}?{following}>; rel="next"'.encode()))
    return json_reply(value, named)


def text_reply(text: str, media_type: str, more: Sequence[tuple[bytes, bytes]]) -> Reply:
    """Return a reply of text."""
    body = text.encode()
    headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode()), *more]
    return Reply(200, headers, body)
