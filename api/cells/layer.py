"""The layer that gives each request to a cell, where there are several; it stands where one cell has its own layer.

Nothing is shared between cells, and each checks the caller itself: this layer only looks up where the caller's owner is
at home. A cell that does not answer takes its own jobs with it and nothing else: what is listed of all cells says in
the header ``Corelane-Cells-Missing`` which are missing.
"""

from collections.abc import Mapping, Sequence

from corelane.domain.cells import CellMap
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.cells.answers import answer_of
from api.cells.calls import Replay, call_all, changed, read_body, read_query
from api.cells.cell import Cell
from api.cells.merging.shows import asked_of
from api.cells.places import Asker, Places
from api.cells.standing import Standing
from api.cells.steering import steer
from api.cells.steps import step
from api.cells.ways import Kind, Way, way_of
from api.context import PARTS, SHOWN_CELLS
from api.errors import refuse
from api.middleware.console_door import cookie_of, session_of
from api.middleware.edge import Refuse, given_key
from api.middleware.key_cache import KeyFinder
from corelane.errors import CorelaneError, NotFound
from corelane.store.sessions import SessionStore

#: The cell whose pages a browser sees in the console: a query parameter sets it, and a cookie keeps it.
CHOICE, CHOICE_COOKIE = "cell", "corelane_cell"

#: A body that is read to find its cell is no longer, in bytes.
MOST_BYTES = 256 * 1024


class CellLayer:
    """Gives requests to cells."""

    def __init__(
        self,
        app: ASGIApp,
        cells: Mapping[str, Cell],
        standing: Standing,
        sessions: SessionStore,
        keys: KeyFinder,
        refuse_page: Refuse,
    ) -> None:
        self._refuse_page = refuse_page
        self._settings = next(iter(cells.values())).settings
        self._inner = {name: _InCell(cell, cell.layer(app, sessions, refuse_page)) for name, cell in cells.items()}
        self._map = CellMap(tuple(cells), frozenset(self._settings.draining_cells))
        self._places = Places(cells, self._map, standing, sessions, keys)
        self._standing = standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner[self._map.first](scope, receive, send)
            return
        way = way_of(scope["method"], scope["path"], scope["query_string"].decode("latin-1"))
        try:
            await self._serve(way, scope, receive, send)
        except CorelaneError as error:
            refusing = self._refuse_page if way.kind is Kind.CONSOLE else refuse
            await refusing(scope, receive, send, error)

    async def _serve(self, way: Way, scope: Scope, receive: Receive, send: Send) -> None:
        match way.kind:
            case Kind.ANY:
                await self._inner[self._living()](scope, receive, send)
            case Kind.ONE if way.cell in self._inner:
                await self._inner[way.cell](scope, receive, send)
            case Kind.EVERY:
                await self._show(way, self._map.names, scope, send)
            case _:
                await self._of_caller(way, scope, receive, send)

    async def _of_caller(self, way: Way, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose cell depends on the caller."""
        headers = Headers(scope=scope)
        session = session_of(headers) if way.kind is Kind.CONSOLE else ""
        asker = await self._places.asker(given_key(headers), session)
        if asker is None:  # the cell says why
            await self._inner[self._living()](scope, receive, send)
            return
        match way.kind:
            case Kind.OWNED:
                cells = self._places.seen_by(asker)
                if len(cells) == 1:
                    await self._inner[cells[0]](scope, receive, send)
                else:
                    await self._show(way, cells, scope, send)
            case Kind.STEER:
                await self._steer(scope, await self._read(receive), send)
            case Kind.KEEP:
                body = await read_body(receive, self._settings.max_body_bytes, self._settings.body_timeout_s)
                await self._keep(self._places.of_kept(asker), scope, body, send)
            case Kind.STEPS:
                body = await self._read(receive)
                await (await step(self._inner, self._places.seen_by(asker), scope, body)).send(send)
            case Kind.FILE:
                body = await self._read(receive)
                await self._inner[self._places.of_file(body, asker)](scope, Replay(body, receive), send)
            case Kind.NAMED:
                cell = await self._places.of_name(asker, way.name, creates=scope["method"] == "PUT")
                await self._inner[cell](scope, receive, send)
            case Kind.ONE:
                raise NotFound(f"the id names cell {way.cell!r}, which this service does not have, or has no longer")
            case Kind.CONSOLE:
                await self._page(way, asker, scope, receive, send)
            case _:
                cell = await self._places.of_new(asker, headers.get("idempotency-key", ""))
                await self._inner[cell](scope, receive, send)

    async def _show(self, way: Way, cells: Sequence[str], scope: Scope, send: Send) -> None:
        """Answer with what several cells show."""
        query, asked = read_query(scope), self._standing.living(cells)
        path = "/v1/models" if way.shows == "model" else None
        scopes = {cell: changed(scope, query=asked_of(way.shows, query, cell), path=path) for cell in asked}
        replies = await call_all({cell: (self._inner[cell], each, b"") for cell, each in scopes.items()})
        self._standing.note(replies)
        scope["route"] = next((each["route"] for each in scopes.values() if "route" in each), None)
        missing = [cell for cell in cells if cell not in replies]
        await answer_of(way, replies, query, missing, scope).send(send)

    async def _steer(self, scope: Scope, body: bytes, send: Send) -> None:
        """Change every cell, and say where that did not work."""
        scopes = {cell: changed(scope, body=body) for cell in self._map.names}
        replies = await call_all({cell: (self._inner[cell], each, body) for cell, each in scopes.items()})
        self._standing.note(replies)
        scope["route"] = next((each["route"] for each in scopes.values() if "route" in each), None)
        await steer(replies).send(send)

    async def _keep(self, cells: Sequence[str], scope: Scope, body: bytes, send: Send) -> None:
        """Have several cells keep or forget the same, as far as they answer; a refusal of one is the answer.

        What one cell has not is no refusal where another had it.
        """
        scopes = {cell: changed(scope, body=body) for cell in cells}
        replies = await call_all({cell: (self._inner[cell], each, body) for cell, each in scopes.items()})
        self._standing.note(replies)
        scope["route"] = next((each["route"] for each in scopes.values() if "route" in each), None)
        found = [reply for reply in replies.values() if not reply.is_away] or list(replies.values())
        had = [reply for reply in found if reply.status != 404] or found
        await next((reply for reply in had if reply.status >= 400), had[0]).send(send)

    async def _read(self, receive: Receive) -> bytes:
        """Read a body that says where it belongs."""
        return await read_body(receive, MOST_BYTES, self._settings.body_timeout_s)

    async def _page(self, way: Way, asker: Asker, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a page of the console: of the cell that an id names, else of the one that the browser chose."""
        chosen = dict(read_query(scope)).get(CHOICE, "")
        seen, kept = self._places.seen_by(asker), cookie_of(Headers(scope=scope), CHOICE_COOKIE)
        cell = next((each for each in (way.cell, chosen, kept) if each in seen), asker.home.cell)

        scope[SHOWN_CELLS] = seen, cell

        async def send_choice(message: Message) -> None:
            if message["type"] == "http.response.start" and chosen in seen:
                cookie = f"{CHOICE_COOKIE}={chosen}; HttpOnly; SameSite=strict".encode()
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", cookie)]
            await send(message)

        await self._inner[cell](scope, receive, send_choice)

    def _living(self) -> str:
        """Return a cell that is not known to be away."""
        return self._standing.living(self._map.names)[0]


class _InCell:
    """A cell's layer: what is inside sees this cell's parts."""

    def __init__(self, cell: Cell, layer: ASGIApp) -> None:
        self._parts = cell.parts
        self._layer = layer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request in this cell."""
        scope[PARTS] = self._parts
        await self._layer(scope, receive, send)
