"""What pages show of a ranking: the texts in their new order."""

from collections.abc import Mapping
from typing import Any

from corelane.tasks.presenting import Presenter
from corelane.tasks.text_ranking.wire import Ranked

#: Most texts in one line, and in a table.
MOST_IN_LINE, MOST_IN_TABLE = 5, 100


class RankingPresenter(Presenter):
    """Shows texts, best first."""

    about = "One query, and texts, one a line. The model puts the texts in order by how well they fit the query."
    empty = "no ranking"

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the positions of the best texts, and the score of the first."""
        best = [str(each.index) for each in result.ranking[:MOST_IN_LINE]]
        if not best:
            return "", None
        then = f", then {', '.join(best[1:])}" if best[1:] else ""
        return f"text {best[0]}{then}", result.ranking[0].score

    def shown(self, item: Ranked | None, result: Any) -> Mapping[str, Any]:
        """Return the first places with their texts, as far as they are known; and how many places follow."""
        ranking, texts = (result.ranking if result else []), (item.texts if item else ())
        found = [
            (each, texts[each.index] if each.index < len(texts) else each.text) for each in ranking[:MOST_IN_TABLE]
        ]
        return {"places": found, "further": max(0, len(ranking) - len(found))}
