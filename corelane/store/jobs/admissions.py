"""The state of the fleet, read before a job is submitted."""

from corelane.domain.aliases import choose
from corelane.domain.dispatch import PUBLIC
from corelane.domain.pauses import Pauses
from corelane.store.jobs.submission import Admission
from corelane.store.link.link import CommonLink, texts


class Admissions:
    """Reads admissions. Writes nothing."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def admit(self, model: str, key: str = "", owner: str = PUBLIC) -> Admission:
        """Read the state of the fleet for an owner's job; the version is None if the model is unknown.

        If the model is an alias of several versions, ``key`` chooses one.
        """
        found, outstanding, own, paused = await self._link.run("admit", model=model, owner=owner)
        versions = {version.decode(): (weight, held, idle) for version, weight, held, idle in found}
        version = next(iter(versions), None)
        if len(versions) > 1:
            version = choose({name: float(weight) for name, (weight, *_) in versions.items()}, key)
        _, held, idle = versions[version] if version is not None else (b"1", 0, 0)
        return Admission(
            version,
            outstanding=outstanding,
            own=own,
            is_held=bool(held),
            idle=idle,
            pause=Pauses.decode(texts(paused)).against(version or "", owner) if paused else None,
        )
