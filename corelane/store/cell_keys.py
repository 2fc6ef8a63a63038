"""API keys of several cells: every cell has every key, so that each checks its callers without asking another.

A key says in which cells its owner has jobs. The first is the one of new jobs: it is chosen when the owner's first key
is made. A change that does not reach every cell is told, and ``sync`` completes it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from corelane.domain.api_keys import Key, Scope
from corelane.domain.cells import CellMap, least_loaded
from corelane.errors import InvalidInput, NotFound, StoreUnavailable, Unavailable
from corelane.store.api_keys import ApiKeyStore
from corelane.store.gauges import read_work
from corelane.store.link.blocking import Link
from corelane.store.webhook_secrets import sync_secrets


class CellKeys:
    """Makes, lists, moves and revokes keys in all cells."""

    def __init__(self, links: Mapping[str, Link], draining: Iterable[str] = ()) -> None:
        self._links = dict(links)
        self._stores = {cell: ApiKeyStore(link) for cell, link in links.items()}
        self._map = CellMap(tuple(links), frozenset(draining))

    def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        owner: str | None = None,
        expires_ms: int | None = None,
        cell: str | None = None,
    ) -> tuple[Key, str]:
        """Make a key; return it and its secret. Its owner is at home where the owner's other keys say, else in
        ``cell``, else where least work waits. Nothing is made if a cell is away: StoreUnavailable names it.
        """
        self._require_all()
        first, *others = self._stores.values()
        known = [key for key in first.list() if owner is not None and key.owner == owner]
        cells = self._cells_of(known[-1]) if known else (self._checked(cell) if cell else self._choose(first),)
        if cell is not None and cell != cells[0]:
            raise InvalidInput(f"{owner} is at home in cell {cells[0]}; `corelane keys move` moves an owner")
        key, secret = first.create(name, scopes, owner, expires_ms, cells)
        digest = next(digest for digest, each in first.by_digest().items() if each.id == key.id)
        for store in others:
            store.keep(digest, key)
        return key, secret

    def list(self) -> list[Key]:
        """Return every key there ever was, oldest first, as the cells that answer have them; each notes its own use."""
        merged: dict[str, Key] = {}
        for store in self._living().values():
            for key in store.list():
                merged[key.id] = _merge(merged.get(key.id, key), key)
        return sorted(merged.values(), key=lambda key: key.id)

    def id_of(self, digest: str) -> str | None:
        """Return the id of the key with this digest."""
        found = (store.id_of(digest) for store in self._living().values())
        return next((each for each in found if each is not None), None)

    def revoke(self, key_id: str) -> Key | None:
        """Revoke a key for good, in every cell that answers, and return it; None if none has it.

        Raise StoreUnavailable afterwards if a cell is away: it goes on taking the key.
        """
        living = self._living()
        found = [store.revoke(key_id) for store in living.values()]
        if away := [cell for cell in self._stores if cell not in living]:
            raise StoreUnavailable(
                f"revoked in {_named(living)} and not in {_named(away)}, where nothing answers and the key works once "
                "something does: run `corelane keys sync` then"
            )
        return next((key for key in found if key is not None), None)

    def move(self, owner: str, cell: str) -> tuple[str, ...]:
        """Have an owner's new jobs go to another cell; return the cells of its jobs. Those it has stay where they are.

        Raise NotFound for an owner without keys, StoreUnavailable if a cell is away.
        """
        self._require_all()
        self._checked(cell)
        cells: tuple[str, ...] = ()
        for store in self._stores.values():
            for digest, key in store.by_digest().items():
                if key.owner == owner:
                    cells = cells or (cell, *(each for each in self._cells_of(key) if each != cell))
                    store.keep(digest, replace(key, cells=cells))
        if not cells:
            raise NotFound(f"no key has the owner {owner!r}; `corelane keys list --all` shows them")
        return cells

    def sync(self) -> int:
        """Give every cell every key and every webhook secret; return how many entries were written.

        A key is as the newest change left it: one that is revoked in one cell is revoked in all. Raise StoreUnavailable
        if a cell is away.
        """
        self._require_all()
        kept = {cell: store.by_digest() for cell, store in self._stores.items()}
        merged: dict[str, Key] = {}
        for keys in kept.values():
            for digest, key in keys.items():
                merged[digest] = key if digest not in merged else _merge(merged[digest], key)
        written = 0
        for cell, store in self._stores.items():
            for digest, key in merged.items():
                if (has := kept[cell].get(digest)) is None or replace(has, used="") != replace(key, used=""):
                    store.keep(digest, key)
                    written += 1
        return written + sync_secrets(self._links.values())

    def differing(self) -> int:
        """Return how many keys are not the same in all cells that answer."""
        kept = [store.by_digest() for store in self._living().values()]
        every = {digest for keys in kept for digest in keys}
        return sum(
            len({replace(key, used="") if (key := keys.get(digest)) else None for keys in kept}) > 1 for digest in every
        )

    def _cells_of(self, key: Key) -> tuple[str, ...]:
        """Return the cells of a key's owner; of a key that was made before there were several, the first."""
        return self._map.home_of_key(key.owner, key.cells).spans

    def _checked(self, cell: str) -> str:
        if cell not in self._stores:
            raise InvalidInput(f"there is no cell {cell!r}; CORELANE_CELLS has {', '.join(self._stores)}")
        return cell

    def _choose(self, store: ApiKeyStore) -> str:
        """Return the cell of a new owner."""
        owners = Counter(self._cells_of(key)[0] for key in {key.owner: key for key in store.list()}.values())
        waiting = {
            cell: max(self._links[cell].read(read_work).backlog_s.values(), default=0.0) for cell in self._map.open
        }
        return least_loaded({cell: owners[cell] for cell in self._map.open}, waiting)

    def _living(self) -> dict[str, ApiKeyStore]:
        """Return the stores of the cells that answer; raise StoreUnavailable if none does."""
        living = {}
        for cell, link in self._links.items():
            try:
                link("PING")
            except Unavailable:
                continue
            living[cell] = self._stores[cell]
        if not living:
            raise StoreUnavailable("no cell answers")
        return living

    def _require_all(self) -> None:
        living = self._living()
        if away := [cell for cell in self._stores if cell not in living]:
            raise StoreUnavailable(f"{_named(away)} does not answer: nothing was changed, as every cell has every key")


def _merge(one: Key, other: Key) -> Key:
    """Return a key as the later change left it: revoked if either is, and the longer list of cells."""
    revoked = [key.revoked_ms for key in (one, other) if key.revoked_ms is not None]
    cells, used = max(one.cells, other.cells, key=len), max(one.used, other.used)
    return replace(one, revoked_ms=min(revoked, default=None), cells=cells, used=used)


def _named(cells: Iterable[str]) -> str:
    names: Sequence[str] = list(cells)
    return f"cell{'s' if len(names) > 1 else ''} {', '.join(names)}"
