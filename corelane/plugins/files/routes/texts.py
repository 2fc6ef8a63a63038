"""Stored contexts: put, list, show, read, delete. Jobs name them by `context_id` in place of sending their text."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError
from starlette.responses import PlainTextResponse

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.errors import documented
from api.middleware.edge import content_type, is_json
from api.middleware.json_bodies import enter, owner_of, read_json
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.jobs import not_blank
from corelane.domain.texts import TextBody, TextInfo, TextList, is_text_id
from corelane.domain.texts import text_id as id_of_text
from corelane.errors import InvalidInput, NotFound, NotJson, TooLarge
from corelane.errors.sentences import first_fault
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.texts import TextKeeper
from corelane.settings import Settings

#: An example of a text. That of a job which names it is in the folder of its task.
TEXT = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."

router = APIRouter(prefix="/v1/contexts", tags=["contexts"], responses=documented(403, 404, 422, 503))

CREATED = {
    200: {"model": TextInfo, "description": "It was there already; its time begins again."},
    **documented(400, 413, 429),
}

TEXT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": TEXT},
            "application/json": {
                "schema": TextBody.model_json_schema(),
                "example": {"text": TEXT, "name": "towers.txt", "expires_in_s": 86_400},
            },
        },
    }
}

#: The content types of a plain text body.
PLAIN = ("", "text/plain")

TextId = Annotated[str, Path(max_length=200, description="The context's id: `ctx_` and the SHA-256 of its text.")]


async def read_body(request: Request, state: AppState) -> TextBody:
    """Read a context from a request, as plain text or JSON; raise InvalidInput or TooLarge."""
    kind = content_type(request.headers)
    if kind not in PLAIN and not is_json(kind):
        raise NotJson(f"the body is said to be `{kind[:100]}`: send text/plain, or JSON with a `text`")

    def parse(body: bytes) -> TextBody:
        if not is_json(kind):
            return TextBody(text=body.decode())
        return TextBody.model_validate(read_json(state.settings, body))

    try:
        with await enter(request):
            given = await state.large_bodies.read(owner_of(request), await request.body(), parse)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON in UTF-8: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the text is not UTF-8: byte {error.start:,} is wrong") from None
    except ValidationError as error:
        raise InvalidInput(first_fault(error, TextBody)) from None
    require_allowed(given, state.settings)
    return given


def require_allowed(given: TextBody, settings: Settings) -> None:
    """Raise InvalidInput or TooLarge for a context that this service does not accept."""
    try:
        not_blank(given.text)
    except ValueError as error:
        raise InvalidInput(f"the text {error}") from None
    most, longest_s = settings.max_context_chars, settings.of(FilesFields).context_ttl_s
    if len(given.text) > most:
        raise TooLarge(
            f"the text is longer than {most:,} characters: cut it into several contexts, or have the operator raise "
            "CORELANE_MAX_CONTEXT_CHARS"
        )
    if given.expires_in_s is not None and given.expires_in_s > longest_s:
        raise InvalidInput(f"`expires_in_s` is at most {longest_s} here (CORELANE_CONTEXT_TTL_S)")


async def keep(state: AppState, caller: Caller, given: TextBody, response: Response) -> TextInfo:
    """Store a context; answer 201 if it is new."""
    ttl_s = given.expires_in_s or state.settings.of(FilesFields).context_ttl_s
    found, is_new = await state.of(TextKeeper).keep(caller.owner, given.text, given.name, ttl_s)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/contexts/{found.id}"
    return found


@router.post("", status_code=201, responses=CREATED, openapi_extra=TEXT_BODY)
async def store_context(request: Request, response: Response, state: StateDep, caller: SubmitCaller) -> TextInfo:
    """Store a context, and learn its id: for those who do not want to compute it."""
    return await keep(state, caller, await read_body(request, state), response)


@router.put("/{context_id}", status_code=201, responses=CREATED, openapi_extra=TEXT_BODY)
async def put_context(
    context_id: TextId, request: Request, response: Response, state: StateDep, caller: SubmitCaller
) -> TextInfo:
    """Store a context under its id. It is kept once however often it is put; each use begins its time again."""
    given = await read_body(request, state)
    if context_id != (right := id_of_text(given.text)):
        raise InvalidInput(f"the id of this text is {right}: put it there, or POST it to /v1/contexts")
    return await keep(state, caller, given, response)


@router.get("")
async def list_contexts(
    state: StateDep,
    caller: ReadCaller,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most contexts in a page.")] = 100,
    after: Annotated[str | None, Query(max_length=100, description="Cursor of an earlier page's `next`.")] = None,
) -> TextList:
    """List your stored contexts, newest first."""
    return await state.of(TextKeeper).page(caller.owner, after, limit)


@router.get("/{context_id}")
async def get_context(context_id: TextId, state: StateDep, caller: ReadCaller) -> TextInfo:
    """Describe a stored context."""
    found = await state.of(TextKeeper).get(caller.owner, context_id) if is_text_id(context_id) else None
    if found is None:
        raise no_such_context(context_id)
    return found


@router.get(
    "/{context_id}/text",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_context_text(context_id: TextId, state: StateDep, caller: ReadCaller) -> Response:
    """Return a stored context's text."""
    return PlainTextResponse(await read_text(context_id, state, caller))


async def read_text(context_id: str, state: AppState, caller: Caller) -> str:
    """Return the text of a caller's stored context; raise NotFound."""
    text = await state.of(TextKeeper).text(caller.owner, context_id) if is_text_id(context_id) else None
    if text is None:
        raise no_such_context(context_id)
    return text


@router.delete("/{context_id}", status_code=204)
async def delete_context(context_id: TextId, state: StateDep, caller: SubmitCaller) -> None:
    """Delete a stored context: no new job can name it. Jobs that name it already are answered; it goes with them."""
    store = state.of(TextKeeper)
    if not is_text_id(context_id) or not await store.remove(caller.owner, context_id):
        raise no_such_context(context_id)
    state.jobs.submitter.texts.forget(caller.owner, [context_id])


def no_such_context(given: str) -> NotFound:
    """Return the error for a context that the caller does not have. It does not tell whether another owner has it."""
    return NotFound(f"there is no stored context {given[:80]!r}; it was never stored, was deleted, or its time is over")
