"""The tasks there are, by name."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from corelane.domain.jobs import DEFAULT_TASK, TaskOptions
from corelane.tasks.dialects import Dialect
from corelane.tasks.feature_extraction.task import FeatureExtraction
from corelane.tasks.forms import Predict
from corelane.tasks.handler.task import HandlerTask
from corelane.tasks.question_answering.task import QuestionAnswering
from corelane.tasks.task import Task
from corelane.tasks.text_classification.task import TextClassification
from corelane.tasks.text_ranking.task import TextRanking
from corelane.tasks.token_classification.task import TokenClassification
from corelane.tasks.zero_shot_classification.task import ZeroShotClassification

#: The tasks by name. A task has the name of Hugging Face's pipeline.
TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        QuestionAnswering(),
        TextClassification(),
        ZeroShotClassification(),
        TokenClassification(),
        FeatureExtraction(),
        TextRanking(),
        HandlerTask(),
    )
}

#: The dialects of all tasks, by path; that of any task reads a body as one of the default task here.
DIALECTS: Mapping[str, Dialect] = {Predict.path: Predict(TASKS[DEFAULT_TASK])} | {
    each.path: each for task in TASKS.values() for each in task.dialects
}

#: The key of the task's name in stored options; absent for the default task.
TASK = "task"


def task_named(name: str) -> Task:
    """Return a task; raise ValueError for an unknown name, which a newer version of Corelane may have stored."""
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r} in this version")
    return TASKS[name]


@lru_cache(maxsize=256)
def parse_options(stored: bytes) -> TaskOptions:
    """Read the options of a job, cached because most jobs have the same few; raise ValueError."""
    given = orjson.loads(stored)
    return task_named(given.pop(TASK, DEFAULT_TASK)).options.parse(given)


def stored_options(options: TaskOptions) -> bytes:
    """Return options in stored form, but without newer options at their default: older workers refuse unknown ones."""
    given: dict[str, Any] = {} if options.task == DEFAULT_TASK else {TASK: options.task}
    return orjson.dumps(given | options.stored())
