"""Every query of boards and rules, and the metrics they name."""

import re

from deploy.monitoring import boards
from tests.monitoring.prometheus import rules

#: Stands for Grafana's variables: ranges that hold some scrapes.
VARIABLES = {"$__rate_interval": "20s"}

NAME = re.compile(r"\bcorelane_\w+")


def filled_in(query: str) -> str:
    """Return a query with Grafana's variables filled in."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def metrics_in(query: str) -> set[str]:
    """Return every metric of ours that a query names."""
    return {re.sub("_(bucket|sum|count)$", "", name) for name in NAME.findall(query)}


#: What only devices of their own report, not CPUs.
OF_DEVICES = {"corelane_core_device_errors_total"}

#: What has no series before an accident: tests/integration/test_metrics.py makes one.
OF_ACCIDENTS = {"corelane_wasted_tokens_total"}

ALL_PANELS = [filled_in(query) for board in boards.ALL for panel in board.panels() for query, _ in panel.queries]

#: Every query of a panel that a CPU answers, and those that only a device does.
PANELS = [query for query in ALL_PANELS if not metrics_in(query) & (OF_DEVICES | OF_ACCIDENTS)]
DEVICE_PANELS = [query for query in ALL_PANELS if metrics_in(query) & OF_DEVICES]

#: Every query of the lines across panels.
MARKS = [query for _, query, *_ in boards.MARKS]

RULES = [rule["expr"] for rule in (*rules("recording"), *rules("alerts"))]


def named_metrics() -> set[str]:
    """Return every metric of ours that boards and rules name."""
    return {name for query in (*ALL_PANELS, *MARKS, *RULES) for name in metrics_in(query)}
