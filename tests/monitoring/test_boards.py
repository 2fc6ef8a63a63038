"""The boards in the repository are those of the table, can be imported anywhere, and lead to each other."""

import json
import re
from pathlib import Path
from typing import Any

from corelane.metrics.definitions import ALL
from deploy.monitoring import boards
from tests.monitoring.queries import ALL_PANELS, MARKS, RULES, metrics_in, named_metrics

BOARDS: dict[str, Any] = {path.name: json.loads(path.read_text()) for path in boards.BOARDS.glob("*.json")}


def test_the_boards_are_those_of_the_table() -> None:
    assert {path: path.read_text() for path in boards.BOARDS.iterdir()} == boards.files()


def test_no_board_names_a_data_source() -> None:
    for board in BOARDS.values():
        sources = [panel.get("datasource", boards.SOURCE) for panel in board["panels"]]
        sources += [mark["datasource"] for mark in board["annotations"]["list"]]
        sources += [target["datasource"] for panel in board["panels"] for target in panel.get("targets", ())]
        assert all(source == boards.SOURCE for source in sources)
        assert [variable["name"] for variable in board["templating"]["list"]] == ["DS_PROMETHEUS"]


def test_boards_link_to_each_other_and_keep_the_range() -> None:
    uids = {board["uid"] for board in BOARDS.values()}
    for board in BOARDS.values():
        [link] = board["links"]
        assert Path(link["url"]).name in uids - {board["uid"]}
        assert link["keepTime"]


def test_panels_do_not_overlap() -> None:
    for board in BOARDS.values():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            assert max(x for x, _ in cells) < boards.COLUMNS
            taken |= cells


def test_every_metric_that_boards_and_rules_name_is_one_of_ours() -> None:
    assert named_metrics() - ALL.keys() == set()


def test_every_label_that_boards_and_rules_name_is_one_of_their_metric() -> None:
    """Queries name one metric for each ``by``, or several with the same label."""
    for query in (*ALL_PANELS, *MARKS, *RULES):
        known = {"le", "job", "alertname", "alertstate"}
        known |= {label for name in metrics_in(query) for label in ALL[name].labels}
        named = [label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")]
        named += re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)
        assert set(named) <= known, query
