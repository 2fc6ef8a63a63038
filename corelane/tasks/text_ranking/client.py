"""The client's way to rank texts."""

from collections.abc import Sequence
from typing import Any, cast

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.tasks.text_ranking.wire import RankingResult


def rerank(
    service: ServiceProtocol, /, query: str, texts: Sequence[str], *, model: str, **options: Any
) -> Exchange[RankingResult]:
    """Rank texts by how well they fit a query, best first; wait without limit.

    ``options`` are the options of a job, such as ``top_n``.
    """
    item = {"query": query, "texts": list(texts)}
    found = yield from service.results_of([item], model=model, options=options)
    return cast(RankingResult, found[0])
