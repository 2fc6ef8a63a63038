"""The task of a model, which decides what a job's items and options are.

A version has one task for good. The model that a job asks for may be an alias, which may be moved to a version of
another task. So what is known of a model is checked when its job is admitted (``Submitter.admit``).
"""

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import WrongTask
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore
from corelane.tasks.registry import TASKS, task_named
from corelane.tasks.task import Task


class ModelTasks:
    """Finds the tasks of models, and caches them."""

    def __init__(self, store: JobStore, fleet: Fleet) -> None:
        self._store, self._fleet = store, fleet
        self._versions: dict[str, Task] = {}
        self._models: dict[str, Task] = {}

    def known(self, model: str) -> Task | None:
        """Return the task that a model had when it was last asked for; None if it never was.

        Nothing is known of a model whose version has forms of its own: the next version may have others.
        """
        return self._models.get(model)

    async def of_model(self, model: str) -> Task:
        """Return the task of a model; that of models without one if there is no such model."""
        if (found := self.known(model)) is not None:
            return found
        version = await self._fleet.meant(model) or (await self._store.admit(model)).version
        if version is None:
            return task_named(DEFAULT_TASK)
        return self._keep(model, await self._of_version(version))

    async def check(self, model: str, version: str, task: str) -> None:
        """Raise WrongTask if a job of ``task`` asks for ``model`` and would be answered by a version of another."""
        has = await self._of_version(version)
        if has.name == task:
            return
        self._keep(model, has)
        raise WrongTask(
            f"{model} is a model for {has.name}, not for {task}: send its items by POST /v1/jobs, such as "
            f"{dict(has.example)}"
        )

    def _keep(self, model: str, task: Task) -> Task:
        if task is TASKS[task.name]:
            self._models[model] = task
        return task

    async def _of_version(self, version: str) -> Task:
        if (found := self._versions.get(version)) is None:
            summary = await self._fleet.summary(version)
            task = task_named(str(summary.get("task", DEFAULT_TASK)))
            found = self._versions[version] = task.of_version(version, summary)
        return found
