"""Queries and texts to rank for the bench."""

import random
from collections.abc import Mapping
from typing import Any

from corelane.plugins.lab.synthetic import make_sentence
from corelane.plugins.lab.workload import BenchItem, MakeText, TaskBench

#: Texts of an item. Stated lengths are those of each text.
TEXTS = 8


class RankingBench(TaskBench):
    """Items of a query and some texts."""

    def make(self, rng: random.Random, make_text: MakeText) -> BenchItem:
        """Make a query and the texts that it ranks."""
        query = make_sentence(rng)
        texts = [make_text("", lambda text: self.tokens({"query": query, "texts": [text]})) for _ in range(TEXTS)]
        return BenchItem({"query": query, "texts": texts})

    def output(self, result: Mapping[str, Any]) -> Any:
        """Return the scores by text: scores that are nearly equal may change places."""
        return {each["index"]: each["score"] for each in result.get("ranking", ())}


BENCH = RankingBench
