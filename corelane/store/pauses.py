"""Pauses in Redis. Every claim reads them there, so they outlive restarts of everything else."""

from corelane.domain.pauses import Pause, PauseKind, Pauses, decode_pause
from corelane.errors import NotFound
from corelane.store import keys
from corelane.store.jobs.search import known_owners
from corelane.store.link.link import CommonLink, texts

#: The commands that list the names of each kind.
LISTED = {
    PauseKind.MODEL: "`corelane models list` lists the versions",
    PauseKind.OWNER: "`corelane keys list` names the owners",
}


class PauseStore:
    """Pauses and resumes versions and owners."""

    def __init__(self, link: CommonLink, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._link = link
        self._bell = bell

    async def read(self) -> Pauses:
        """Return all that is paused."""
        return await read_pauses(self._link)

    async def pause(self, kind: PauseKind, name: str, by: str) -> tuple[Pause, bool]:
        """Stop new claims; return the pause, and whether it is new. Raise NotFound for an unknown name."""
        if not await self._is_known(kind, name):
            raise NotFound(f"there is no {kind} {name[:120]!r} to pause; {LISTED[kind]}")
        told, is_new = await self._link.run("pause", kind=kind, name=name, by=by)
        return decode_pause(kind, name, told.decode()), bool(is_new)

    async def resume(self, kind: PauseKind, name: str) -> bool:
        """Resume a version or owner; return whether it was paused. Raise NotFound for an unknown name."""
        if await self._link.run("resume", kind=kind, name=name, envelope=self._bell):
            return True
        if not await self._is_known(kind, name):
            raise NotFound(f"there is no {kind} {name[:120]!r}; `corelane jobs paused` lists what is paused")
        return False

    async def _is_known(self, kind: PauseKind, name: str) -> bool:
        if kind is PauseKind.OWNER:
            return name in await known_owners(self._link)
        asked = [("HEXISTS", table, name) for table in (keys.MODELS, keys.PLACEMENTS)]
        return any(await self._link.many(asked))


async def read_pauses(link: CommonLink) -> Pauses:
    """Return all that is paused."""
    return Pauses.decode(texts(await link("HGETALL", keys.PAUSED)))
