"""Open files of an API process: each connection is one, and at the limit no connection is accepted any more."""

import resource
from pathlib import Path

from corelane.log import get_logger
from corelane.store.metrics import ProcessMetrics

log = get_logger(__name__)

#: Warn once the used share of the limit reaches ``NEAR``; warn again only after it was below ``FAR``.
NEAR, FAR = 0.8, 0.6

OWN = Path("/proc/self/fd")

#: More open files than a process needs. Hosts without a real limit name one of a thousand million.
MOST = 65_536


def raise_limit() -> None:
    """Let this process open as many files as it may: a login shell's default is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


class OpenFiles:
    """Watches how close this process is to its limit."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics
        self._is_near = False

    def measure(self) -> None:
        """Note the used share of the limit; warn when it gets close."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = sum(1 for _ in OWN.iterdir()) if OWN.exists() else 0
        share = self._metrics.gauges["open_files"] = round(used / most, 3)
        if share >= NEAR and not self._is_near:
            advice = "raise the limit (ulimit -n), or bound connections at a proxy: docs/23-security.md"
            log.warning("open_files_near_limit", open=used, limit=most, advice=advice)
        self._is_near = share >= (FAR if self._is_near else NEAR)
