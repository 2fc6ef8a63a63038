"""Texts for the bench that are classified by labels of the caller's."""

import random

from corelane.plugins.lab.workload import BenchItem, MakeText
from corelane.tasks.text_classification.lab import LabelsBench

LABELS = ["harbour", "garden", "railway", "weather"]


class ZeroShotBench(LabelsBench):
    """Items of one text and the same labels."""

    def make(self, rng: random.Random, make_text: MakeText) -> BenchItem:  # noqa: ARG002
        """Make a text and its labels; a stated number of tokens is that of each row."""
        text = make_text("", lambda text: self.tokens({"text": text, "labels": LABELS[:1]}))
        return BenchItem({"text": text, "labels": LABELS})


BENCH = ZeroShotBench
