"""What pages show of labels: each with a bar."""

from typing import Any

from corelane.tasks.presenting import Presenter


class LabelsPresenter(Presenter):
    """Shows labels, best first."""

    about = "One text, or a pair of texts. The model gives its labels, each with a score."
    empty = "no labels"

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the best label."""
        return (result.labels[0].label, result.labels[0].score) if result.labels else ("", None)
