"""Queries and texts to rank, for ``corelane bench``."""

import random

from corelane.plugins.bench.items import Given, TaskItems, prose

#: How many texts a made item has.
TEXTS = 8


class RankingItems(TaskItems):
    """Items of a query and some texts."""

    def make(self, rng: random.Random, tokens: int) -> Given:
        """Make a query, and texts of about ``tokens`` tokens each."""
        return Given({**self.task.example, "texts": [prose(rng, tokens) for _ in range(TEXTS)]})


ITEMS = RankingItems
