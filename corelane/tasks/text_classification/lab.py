"""Texts to classify for the bench."""

from collections.abc import Mapping
from typing import Any

from corelane.plugins.lab.workload import TaskBench


class LabelsBench(TaskBench):
    """Tasks whose results are labels with scores."""

    def output(self, result: Mapping[str, Any]) -> Any:
        """Return the scores by label: scores that are nearly equal may change places."""
        return {each["label"]: each["score"] for each in result.get("labels", ())}


BENCH = LabelsBench
