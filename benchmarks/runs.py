"""What every benchmark shares: quick runs, the service that is measured, and where the figures go.

A quick run (``--quick``) takes seconds and shows that a benchmark still runs. Its figures mean nothing, so it keeps
none. ``lend`` has the benchmarks that are called inside it measure one service.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corelane.cli.folders import PARTS_FILE
from corelane.cli.local import running_service
from corelane.cli.redis_users import operator_url
from corelane.settings import Settings

QUICK = "--quick"

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: where it is, its folder, its target and default model, its process and its Redis."""

    url: str
    data: Path
    target: str
    model: str
    pid: int
    redis_url: str


_LENT: ContextVar[Service | None] = ContextVar("lent", default=None)


def is_quick() -> bool:
    """Whether this run was asked to be quick."""
    return QUICK in sys.argv


def lent() -> Service | None:
    """Return the service that was lent, if one was."""
    return _LENT.get()


@contextmanager
def service(data: Path, prepare: Callable[[Path], object] | None = None, **changes: object) -> Iterator[Service]:
    """Yield the service that was lent, or start one with these settings after preparing its folder."""
    if (given := lent()) is not None:
        yield given
        return
    if prepare is not None:
        prepare(data)
    settings = Settings().model_copy(update=changes)
    with running_service(data, **changes) as url:
        about = json.loads((data / PARTS_FILE).read_text())
        yield Service(url, data, settings.target, settings.model, about["pid"], str(operator_url(about)))


@contextmanager
def lend(data: Path, **changes: object) -> Iterator[Service]:
    """Lend a service to every benchmark that is called inside."""
    with service(data, None, **changes) as running:
        token = _LENT.set(running)
        try:
            yield running
        finally:
            _LENT.reset(token)


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Write the figures to ``results/NAME.json``, unless the run was quick."""
    if not is_quick():
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
