"""From names of models to runners that are loaded, healthy and warm, all on one backend of one core."""

import time
from collections.abc import Iterable
from pathlib import Path

from corelane.artifacts import find_artifact, model_name
from corelane.engine.backend import Backend, open_backend
from corelane.engine.null import NullRunner
from corelane.engine.runner import UNLIMITED, QueryRunner, Runner, RunnerLimits
from corelane.errors import CorelaneError, CoreLost, RuntimeLost
from corelane.log import get_logger

log = get_logger(__name__)


def load_runners(
    target: str,
    root: Path,
    names: Iterable[str],
    null_batch_s: float = 0.0,
    limits: RunnerLimits = UNLIMITED,
    memory_bytes: int | None = None,
) -> tuple[dict[str, QueryRunner], list[str]]:
    """Runners by version, and for each model that did not load the reason: one bad model stops no other.

    Raises SetupError if there is no such backend here, RuntimeLost or CoreLost if it is of no use.
    """
    if target == "null":
        return {NullRunner.version: NullRunner(null_batch_s)}, []
    backend = open_backend(target, memory_bytes)
    runners: dict[str, QueryRunner] = {}
    reasons = []
    for name in dict.fromkeys(names):
        try:
            runner = _load(backend, target, root, name, limits)
            runners[runner.version] = runner
        except (CoreLost, RuntimeLost):
            raise
        except CorelaneError as error:
            reasons.append(f"{error.code}: {error.detail}")
            log.error("model_failed", model=name, code=error.code, detail=error.detail)
    backend.settle()
    return runners, reasons


def _load(backend: Backend, target: str, root: Path, name: str, limits: RunnerLimits) -> Runner:
    started = time.monotonic()
    runner = Runner.open(backend, find_artifact(root, model_name(name), target), limits)
    runner.health()
    runner.warm_up()
    log.info("model_ready", version=runner.version, seconds=round(time.monotonic() - started, 2))
    return runner
