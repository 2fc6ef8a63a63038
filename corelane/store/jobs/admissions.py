"""The state of the fleet and its speed, read before a job is submitted."""

import time
from collections.abc import Mapping, Sequence

from corelane.domain.aliases import choose
from corelane.domain.dispatch import PUBLIC
from corelane.domain.forecast import NO_RESIDUALS, Own, Residuals
from corelane.domain.pauses import NO_PAUSES, Pauses
from corelane.store.jobs.submission import Admission
from corelane.store.link.link import CommonLink, pairs, texts

#: The errors of recent forecasts are read at most once in this time, in seconds, for at most this many models.
RESIDUALS_S, MOST_RESIDUALS = 1.0, 1000


class Admissions:
    """Reads admissions, and caches the errors of recent forecasts for a moment. Writes nothing."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link
        #: The errors of recent forecasts by version; and when to read them again, by the model that is asked for.
        self._residuals: dict[str, Residuals] = {}
        self._residuals_due: dict[str, float] = {}

    async def admit(self, model: str, key: str = "", owner: str = PUBLIC) -> Admission:
        """Read the state of the fleet for an owner's job; the version is None if the model is unknown.

        If the model is an alias of several versions, ``key`` chooses one.
        """
        asks = time.monotonic() >= self._residuals_due.get(model, 0.0)
        ask = {"model": model, "owner": owner, "residuals": asks}
        found, owed, unfed, open_jobs, own, paused = await self._link.run("admit", **ask)
        if asks and found:
            self._keep_residuals(model, {version.decode(): texts for version, *_, texts in found})
        speeds = {version.decode(): its_speeds for version, _, its_speeds, *_ in found}
        version = next(iter(speeds), None)
        if len(speeds) > 1:
            version = choose({version.decode(): float(weight) for version, weight, *_ in found}, key)
        idle = {version.decode(): int(cores) for version, _, _, cores, _ in found}
        pauses = Pauses.decode(texts(paused)) if paused else NO_PAUSES
        return Admission(
            version,
            read_accounts(owed),
            read_accounts(unfed),
            [float(speed) for speed in (speeds[version] if version else ()) if speed is not None],
            [int(count) for count in open_jobs],
            bool(version and speeds[version]),
            [Own(*map(int, counts)) for counts in own],
            idle[version] if version else 0,
            self._residuals.get(version or "", NO_RESIDUALS),
            pauses,
            pauses.against(version or "", owner) if paused else None,
        )

    def _keep_residuals(self, model: str, found: Mapping[str, Sequence[bytes]]) -> None:
        """Cache the residuals of a model's versions, so that not every job reads them."""
        if len(self._residuals_due) >= MOST_RESIDUALS:
            self._residuals_due.clear()
            self._residuals.clear()
        self._residuals_due[model] = time.monotonic() + RESIDUALS_S
        for version, kept in found.items():
            self._residuals[version] = Residuals.decode(pairs(kept))


def read_accounts(flat: Sequence[bytes]) -> dict[tuple[str, int], int]:
    """Decode a reply of alternating ``OWNER:PRIORITY`` and tokens."""
    accounts = {}
    for name, tokens in pairs(flat):
        owner, _, priority = name.decode().rpartition(":")
        accounts[owner, int(priority)] = int(tokens)
    return accounts
