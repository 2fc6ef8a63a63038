"""What work took and cost, as commands show it."""

from corelane.domain.usage import Cost, Usage


def show_core_time(seconds: float) -> str:
    """Return core seconds in the unit that reads best."""
    return f"{seconds:,.2f} s" if seconds < 3600 else f"{seconds / 3600:,.2f} h"


def show_cost(cost: Cost | None) -> str:
    """Return an amount; `-` for None."""
    return "-" if cost is None else cost.shown()


def describe_usage(usage: Usage) -> str:
    """Return a job's usage in one line."""
    parts = [f"{usage.items:,} {'item' if usage.items == 1 else 'items'}"]
    parts += [] if usage.windows is None else [f"{usage.windows:,} windows"]
    parts += [] if usage.tokens is None else [f"{usage.tokens:,} tokens"]
    parts.append(f"{usage.core_s:,.3f} core seconds")
    return ", ".join(parts) + ("" if usage.cost is None else f": {show_cost(usage.cost)}")
