"""The usage of several cells as one: rows of the same group are summed, and amounts of the same currency."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corelane.domain.usage import AMOUNT_DIGITS

#: What a row is grouped by, and its counts.
GROUPS = ("day", "month", "key", "model")
COUNTS = ("items", "windows", "tokens")


def usage(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of all cells."""
    reports = list(found.values())
    merged = dict(reports[0])
    merged["data"] = _rows(row for report in reports for row in report["data"])
    merged["total"] = _rows(row for report in reports for row in report["total"])
    if merged["lost"] is not None:
        merged["lost"] = _rows(row for report in reports for row in report["lost"])
    hosts = [report["host"] for report in reports if report["host"] is not None]
    if hosts:
        costs: dict[str, list[Any]] = {}
        for host in hosts:
            for cost in host["cost"]:
                costs.setdefault(cost["currency"], []).append(cost)
        merged["host"] = {
            "up_s": round(sum(host["up_s"] for host in hosts), 3),
            "busy_s": round(sum(host["busy_s"] for host in hosts), 6),
            "cost": [_cost(costs[currency]) for currency in sorted(costs)],
        }
    return merged


def _rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum the rows of each group and currency."""
    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        currency = row["cost"]["currency"] if row["cost"] else ""
        grouped.setdefault((*(row[name] or "" for name in GROUPS), currency), []).append(row)
    return [_row(grouped[key]) for key in sorted(grouped)]


def _row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged = dict(rows[0])
    for name in COUNTS:
        known = [row[name] for row in rows if row[name] is not None]
        merged[name] = sum(known) if known else None
    merged["core_s"] = round(sum(row["core_s"] for row in rows), 6)
    merged["cost"] = _cost([row["cost"] for row in rows]) if rows[0]["cost"] else None
    return merged


def _cost(costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum amounts of one currency; the price of a core for an hour is their mean by time."""
    amount = sum(cost["amount"] for cost in costs)
    hours = sum(cost["amount"] / cost["per_core_hour"] for cost in costs if cost["per_core_hour"])
    merged = dict(costs[0])
    merged["amount"] = round(amount, AMOUNT_DIGITS)
    merged["per_core_hour"] = amount / hours if hours and len(costs) > 1 else costs[0]["per_core_hour"]
    for name in ("instance", "as_of"):
        values = {cost[name] for cost in costs}
        merged[name] = values.pop() if len(values) == 1 else None
    return merged
