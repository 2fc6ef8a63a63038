"""The class of ``corelane serve --handler``: packaged and loaded under its name, with ``--reload`` at each save.

The version before serves until all cores of this host hold the new one. A save that breaks the class
is said in one sentence, and the version before goes on.
"""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from corelane.cli.supervisor import Supervisor
from corelane.domain.dispatch import Core
from corelane.domain.placement import ALL_CORES, Placement
from corelane.engine.cores import core_slots
from corelane.errors import ArtifactRefused, CorelaneError, LoadFailed, SetupError, VersionInUse
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import Fleet
from corelane.store.link.link import AsyncLink, pairs
from corelane.store.rollout import Rollout
from corelane.tasks.handler.engine.source import files_of, look_here, name_of, require_allowed

#: Time between two looks at the files, or at the cores, in seconds. What is saved is taken once two looks agree.
LOOK_S = 0.3

#: Packages a handler in a process of its own: what it imports stays out of this one.
PUBLISH = "from corelane.tasks.handler.cli import publish_for_serve; import sys; publish_for_serve(*sys.argv[1:])"

#: States of a core that can load a model.
UP = ("idle", "busy")

#: The files of a package with their times of change and sizes.
Saved = frozenset[tuple[str, int, int]]


def allow_class(settings: Settings, path: str, *, reload: bool) -> Settings:
    """Return settings by which workers may import a class; with ``reload`` callers see where it failed, unless set.

    Raises ArtifactRefused if ``path`` does not name a class.
    """
    require_allowed(path, (path,))
    frames = {"handler_errors": "frames"} if reload and "handler_errors" not in settings.model_fields_set else {}
    return settings.model_copy(update={"handlers": (*settings.handlers, path)} | frames)


async def serve_class(
    path: str, settings: Settings, supervisor: Supervisor, *, reload: bool
) -> asyncio.Task[None] | None:
    """Serve a class; with ``reload`` return the task that follows its files. Raises SetupError without it."""
    served = ServedClass(path, settings, supervisor)
    try:
        await served.begin()
    except CorelaneError as error:
        if not (reload or supervisor.is_over):
            raise SetupError(error.detail) from None
        served.say_broken(error)
    return asyncio.create_task(served.follow(), name="own_class") if reload else None


class ServedClass:
    """A class of the operator's, and its version that is served."""

    def __init__(self, path: str, settings: Settings, supervisor: Supervisor) -> None:
        self._path, self._name = path, name_of(path)
        self._settings, self._supervisor = settings, supervisor
        self._version = ""
        self._saved: Saved = frozenset()
        slots = core_slots(settings)[: settings.cores]
        self._cores = [str(Core(settings.core_host, slot.index)) for slot in slots]

    async def begin(self) -> None:
        """Serve the class as it is now; raises ArtifactRefused or LoadFailed."""
        look_here()
        self._saved = self._look()
        published = await self._publish()
        link = AsyncLink(self._settings.redis_url)
        try:
            if published["version"] != self._version:
                await self._roll_out(link, str(published["version"]), str(published["example"]))
        finally:
            await link.close()

    async def follow(self) -> None:
        """Reload the class after each save, until the service stops."""
        while not await self._supervisor.wait(LOOK_S):
            if (saved := self._look()) == self._saved:
                continue
            if await self._supervisor.wait(LOOK_S) or self._look() != saved:
                continue
            try:
                await self.begin()
            except CorelaneError as error:
                self.say_broken(error)

    def say_broken(self, error: CorelaneError) -> None:
        """Say that the class as it was saved last is not served, and what is."""
        goes_on = f"{self._version} goes on" if self._version else "save it again"
        self._supervisor.say(f"{error.detail}; {goes_on}", "error")

    def _look(self) -> Saved:
        found = set()
        with suppress(ArtifactRefused):
            for name, file in files_of(self._path):
                # A file may go between two looks.
                with suppress(OSError):
                    stat = file.stat()
                    found.add((name, stat.st_mtime_ns, stat.st_size))
        return frozenset(found)

    async def _publish(self) -> Mapping[str, Any]:
        """Publish the class in another process; return its version, and what became of its example."""
        argv = [sys.executable, "-c", PUBLISH, self._path, self._name]
        env = self._settings.environment(core=None)
        status, said = await self._supervisor.run(argv, env, asyncio.subprocess.PIPE)
        if status or not said:
            raise ArtifactRefused(f"{self._path} ended the process that packages it: see above")
        found: dict[str, Any] = orjson.loads(said)
        if "refused" in found:
            raise ArtifactRefused(found["refused"])
        return found

    async def _roll_out(self, link: AsyncLink, version: str, example: str) -> None:
        """Load a version, let the name mean it, and unload those before; raises LoadFailed."""
        rollout = Rollout(link)
        placement = await rollout.load(version, ALL_CORES)
        try:
            if not await self._until_held(link, version, placement.since_ms):
                return
        except LoadFailed:
            await rollout.unload(version, ALL_CORES, force=True)
            raise
        await rollout.set_alias(self._name, {version: 1.0})
        self._version = version
        self._supervisor.say(f"{version} is served as {self._name}; {example}")
        for each, raw in pairs(await link("HGETALL", keys.PLACEMENTS)):
            earlier, placed = each.decode(), Placement.model_validate_json(raw)
            if earlier.startswith(f"{self._name}@") and earlier != version and not placed.is_nowhere:
                with suppress(VersionInUse):
                    await rollout.unload(earlier, ALL_CORES)

    async def _until_held(self, link: AsyncLink, version: str, since_ms: int) -> bool:
        """Wait until the cores of this host hold a version; return False if the service stops. Raises LoadFailed."""
        while not await self._supervisor.wait(LOOK_S):
            states = []
            for core in await Fleet(link).reports(self._cores):
                models = [each for each in orjson.loads(core.get("models", "[]")) if each["version"] == version]
                states += [each["state"] for each in models] or (["missing"] if core.get("state") in UP else [])
                if failed := [each["reason"] for each in models if each["reason"] and each["asked_ms"] >= since_ms]:
                    raise LoadFailed(f"{version} does not load: {failed[0]}")
            if states and set(states) == {"ready"}:
                return True
        return False
