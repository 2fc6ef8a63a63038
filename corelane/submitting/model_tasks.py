"""The task of a model, which decides what a job's items and options are.

A version has one task for good. The model that a job asks for may be an alias, which may be moved to a version of
another task. So what is known of a model is checked when its job is admitted (``Submitter.admit``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput, NotReady, UnknownModel, WrongTask
from corelane.errors.sentences import did_you_mean
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore
from corelane.tasks.forms import form_of
from corelane.tasks.registry import TASKS, task_named
from corelane.tasks.task import Task


class ModelTasks:
    """Finds the tasks of models, and caches them."""

    def __init__(self, store: JobStore, fleet: Fleet) -> None:
        self._store, self._fleet = store, fleet
        self._versions: dict[str, Task] = {}
        self._models: dict[str, Task] = {}

    async def of_model(self, model: str, *, again: bool = False) -> Task:
        """Return the task of a model; for the default model, before there is one, the default task.

        Raise UnknownModel. A cached task may be outdated, if an alias moved to a version of another task: with
        ``again``, the alias is looked up. A model whose version has forms of its own is not cached, as its next version
        may have others.
        """
        if not again and (found := self._models.get(model)) is not None:
            return found
        version = await self.version_of(model)
        if version is None:
            if model == DEFAULT_ALIAS:
                return task_named(DEFAULT_TASK)
            raise UnknownModel(await self.no_model(model))
        task = await self._of_version(version)
        return self._keep(model, task) if version in self._versions else task

    async def version_of(self, model: str) -> str | None:
        """Return a version that a version, alias or name means; None if there is none."""
        return await self._fleet.meant(model) or (await self._store.admit(model)).version

    async def announced(self, model: str) -> Task:
        """Return the task of a model, looked up; raise UnknownModel, or NotReady before a worker announced it."""
        task = await self.of_model(model, again=True)
        if await self.version_of(model) not in self._versions:
            raise NotReady(f"no worker has announced {model} yet; try again when GET /v1/models lists it")
        return task

    async def no_model(self, model: str) -> str:
        """Return the sentence that there is no such model, or that it is being unloaded, and name similar ones."""
        models = await self._fleet.models()
        if any(each.is_closed and model == each.version for each in models):
            return f"{model} is being unloaded; GET /v1/models lists what can be asked"
        return no_such_model(model, (name for each in models for name in (each.version, *each.aliases)))

    async def default_of(self, task: str) -> str:
        """Return the model for a caller who names none: the default one if it has the task, else the only one."""
        if (await self.of_model(DEFAULT_ALIAS, again=True)).name == task:
            return DEFAULT_ALIAS
        models = [each for each in await self._fleet.models() if not each.is_closed and task_of(each.summary) == task]
        names = {str(each.summary.get("name")): each for each in models}
        if len(names) != 1:
            return DEFAULT_ALIAS
        [(name, model)] = names.items()
        return name if name in model.aliases else model.version

    async def check(self, model: str, version: str, task: str) -> None:
        """Raise WrongTask if a job of ``task`` asks for ``model`` and would be answered by a version of another."""
        has = await self._of_version(version)
        if has.name == task:
            return
        self._keep(model, has)
        raise WrongTask(
            f"{model} is a model for {has.name}, not for {task}: name one that is (GET /v1/tasks lists them), or send "
            f"by POST /v1/jobs {form_of(has)}"
        )

    async def require_one(self, versions: Iterable[str]) -> None:
        """Raise InvalidInput if versions that one alias is to mean have several tasks."""
        found = {(await self._of_version(version)).name: version for version in versions}
        if len(found) > 1:
            has = ", ".join(f"{version} is for {task}" for task, version in found.items())
            raise InvalidInput(f"an alias means versions of one task, as a job's items have one form: {has}")

    def _keep(self, model: str, task: Task) -> Task:
        if task is TASKS[task.name]:
            self._models[model] = task
        return task

    async def _of_version(self, version: str) -> Task:
        if (found := self._versions.get(version)) is None:
            summary = await self._fleet.summary(version)
            found = task_named(task_of(summary)).of_version(version, summary)
            # A version that no worker has announced yet may have any task.
            if summary:
                self._versions[version] = found
        return found


def no_such_model(model: str, known: Iterable[str]) -> str:
    """Return the sentence that there is no such model; it names the most similar ``known`` ones."""
    meant = did_you_mean(model, sorted(set(known)))
    return f"there is no model {model[:100]!r}{meant or ';'} GET /v1/models lists what can be asked"


def task_of(summary: Mapping[str, Any]) -> str:
    """Return the task of a version, as workers announced it."""
    return str(summary.get("task", DEFAULT_TASK))
