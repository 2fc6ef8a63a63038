"""Alarms: log work that could go on but has waited too long."""

import time

from corelane.log import get_logger
from corelane.store.overdue import CARRIERS, Waits

log = get_logger(__name__)

#: What stays overdue is told again after this, in seconds.
REPEAT_S = 120.0


class Alarm:
    """Tells of each thing that is overdue when that begins, now and then while it lasts, and when it is over."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def tell(self, overdue: Waits) -> None:
        """Tell what there is to tell of what is overdue now."""
        now = time.monotonic()
        for name, waited_s in overdue.items():
            if now - self._told_s.get(name, float("-inf")) >= REPEAT_S:
                self._told_s[name] = now
                log.warning("overdue", what=name, waited_s=round(waited_s), carried_by=CARRIERS[name])
        for name in set(self._told_s) - set(overdue):
            del self._told_s[name]
            log.info("overdue_no_more", what=name)
