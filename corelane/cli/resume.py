"""The run file that ``corelane batch`` keeps beside an output: the options of its lines, and where to resume.

The output holds the lines that are answered. The run file holds the run's name and cost. By the name, jobs that the
service still works on, or has finished since, are found again and not asked twice. The file stays after the run, so
that lines asked with other options are not added to the same output unnoticed. Without the file, lines that are not in
the output are asked again.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from corelane.domain.usage import Cost, Usage
from corelane.errors import InvalidInput

#: The name of a run file is the name of its output with this ending.
SUFFIX = ".run"


@dataclass(slots=True)
class RunFile:
    """A run: its options, its name, and the lines, items and cost before its oldest unfinished job."""

    path: Path | None
    asks: dict[str, Any]
    name: str
    lines: int = 0
    items: int = 0
    core_s: float = 0.0
    amount: float = 0.0
    #: Whether an earlier command began the run.
    is_resumed: bool = False
    #: Currency of the amount. None if nothing was spent; empty if a part has no price or another currency.
    currency: str | None = None

    def spend(self, usage: Usage | None) -> None:
        """Add the cost of a job."""
        cost = None if usage is None else usage.cost
        self.core_s += 0.0 if usage is None else usage.core_s
        currency = "" if cost is None else cost.currency
        self.currency = currency if self.currency in (None, currency) else ""
        self.amount += 0.0 if cost is None else cost.amount

    @property
    def cost(self) -> Cost | None:
        """The cost of the run so far, if all of it has a price."""
        if not self.currency or not self.core_s:
            return None
        return Cost(amount=self.amount, currency=self.currency, per_core_hour=3600 * self.amount / self.core_s)

    def write(self) -> None:
        """Write the file to disk, completely or not at all."""
        if self.path is None:
            return
        kept = {name: value for name, value in asdict(self).items() if name not in ("path", "is_resumed")}
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_bytes(orjson.dumps(kept))
        temporary.replace(self.path)


def open_run(
    output: Path | None,
    asks: Mapping[str, Any],
    kept_lines: int,
    names: Mapping[str, str],
    *,
    overwrite: bool = False,
) -> RunFile:
    """Return the run that an output belongs to, or a new one that begins after the lines it holds.

    ``asks`` holds the options of all lines, ``names`` those that are called otherwise on the command line. Raises
    InvalidInput if the output was begun with other options.
    """
    asked = orjson.loads(orjson.dumps(dict(asks)))
    path = None if output is None else output.with_name(output.name + SUFFIX)
    if path is not None and not overwrite:
        # A file of an earlier version is ignored.
        with suppress(FileNotFoundError, orjson.JSONDecodeError, TypeError):
            run = RunFile(path, **orjson.loads(path.read_bytes()), is_resumed=True)
            if kept_lines and differences(run.asks, asked, names):
                raise InvalidInput(
                    f"{output} was begun otherwise: {differences(run.asks, asked, names)}. Resume it with what it was "
                    "begun with, name another output, or start over with --overwrite"
                )
            if run.asks == asked and 0 <= run.lines <= kept_lines:
                return run
    run = RunFile(path, asked, f"batch-{secrets.token_hex(6)}", kept_lines)
    run.write()
    return run


def differences(before: Mapping[str, Any], now: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the options that differ, as they are typed on the command line."""

    def shown(value: Any) -> str:
        if value is None or value == []:
            return "not given"
        return "given" if value is False else " ".join(map(str, value)) if isinstance(value, list) else str(value)

    return "; ".join(
        f"{names.get(name) or '--' + name.replace('_', '-')} was {shown(before.get(name))}, "
        f"now it is {shown(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )
