"""Where requests belong: the caller's cell, or the cell that already has what a request names."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from corelane.domain.cells import CellMap, Home

from api.cells.cell import Cell
from api.cells.standing import Standing
from api.middleware.key_cache import KeyFinder
from corelane.domain.api_keys import Scope, unchecked_owner
from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import cell_of, is_id
from corelane.errors import StoreUnavailable, Unauthorized, Unavailable
from corelane.store.jobs.idempotency import by_key, by_name
from corelane.store.sessions import SessionStore


@dataclass(frozen=True, slots=True)
class Asker:
    """The owner of a request, and where that owner is at home."""

    owner: str
    home: Home
    #: Whether every cell may have something that the caller sees.
    is_everywhere: bool = True

    @property
    def is_public(self) -> bool:
        """Return whether this is everyone who sends no key: their jobs are spread."""
        return self.owner == PUBLIC


class Places:
    """Finds cells."""

    def __init__(
        self,
        cells: Mapping[str, Cell],
        cell_map: CellMap,
        standing: Standing,
        sessions: SessionStore,
        keys: KeyFinder,
    ) -> None:
        self._cells = cells
        self._map = cell_map
        self._standing = standing
        self._sessions = sessions
        self._keys = keys
        self._checks_keys = next(iter(cells.values())).settings.requires_keys

    async def asker(self, secret: str, session: str) -> Asker | None:
        """Return who asks; None if that cannot be told, as a cell's own layer will then say better."""
        if not self._checks_keys:
            owner = unchecked_owner(secret) if secret else PUBLIC
            return Asker(owner, self._map.home_of_text(owner))
        try:
            key = await self._keys.find(secret) if secret else await self._sessions.find(session) if session else None
        except (Unauthorized, Unavailable):
            return None
        if key is None:
            return None
        return Asker(key.owner, self._map.home_of_key(key.owner, key.cells), Scope.ADMIN in key.scopes)

    def seen_by(self, asker: Asker) -> Sequence[str]:
        """Return the cells that may have what a caller sees, in the order in which they are listed."""
        return [cell for cell in self._map.names if asker.is_everywhere or cell in asker.home.spans]

    def of_kept(self, asker: Asker) -> Sequence[str]:
        """Return the cells where jobs of a caller may be made, that of new ones first."""
        return self._map.open if asker.is_public else asker.home.spans

    async def of_new(self, asker: Asker, idempotency_key: str) -> str:
        """Return the cell of something new; of what the same `Idempotency-Key` made before, if anything."""
        if not idempotency_key:
            return random.choice(self._standing.living(self._map.open)) if asker.is_public else asker.home.cell
        home = self._map.spread(idempotency_key) if asker.is_public else asker.home
        key = by_key(asker.owner, idempotency_key, "", 1).key
        return await self._holder(home.earlier, key) or home.cell

    async def of_name(self, asker: Asker, name: str, *, creates: bool) -> str:
        """Return the cell that has an owner's job of a name, or would get it."""
        home = self._map.spread(name) if asker.is_public else asker.home
        key = by_name(asker.owner, name, "").key
        if creates:
            return await self._holder(home.earlier, key) or home.cell
        seen = [home.cell, *(cell for cell in self.seen_by(asker) if cell != home.cell)]
        if len(seen) == 1:
            return home.cell
        away = home.cell
        for cell in seen:
            try:
                if await self._holder([cell], key):
                    return cell
            except Unavailable:
                self._standing.lost(cell)
                away = cell
        return away

    def of_file(self, body: bytes, asker: Asker) -> str:
        """Return the cell of the file that a batch is made of, as it has that file's lines."""
        try:
            given: Any = orjson.loads(body)
            file = given["input_file_id"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            file = ""
        if isinstance(file, str) and is_id("file", file) and cell_of(file) in self._cells:
            return cell_of(file)
        return self._standing.living(self._map.open)[0] if asker.is_public else asker.home.cell

    async def _holder(self, cells: Sequence[str], key: str) -> str:
        """Return the first cell where something holds a key, or an empty text; raise Unavailable."""
        for cell in cells:
            try:
                holder = await self._cells[cell].parts.store.holder(key)
            except StoreUnavailable as error:
                raise StoreUnavailable(f"cell {cell}, which may have made this before: {error.detail}") from error
            if holder is not None:
                return cell
        return ""
