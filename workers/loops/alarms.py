"""Alarms: log work that could go on but has waited too long."""

from corelane.log import get_logger
from corelane.store.overdue import CARRIERS, OVERDUE_S, Waits

log = get_logger(__name__)

#: Work that stays overdue is logged again after this time, in seconds.
REPEAT_S = 120.0

#: A longer pause between two checks means that there was no check: the process was stopped, or Redis could not be
#: reached. In seconds.
GAP_S = 15.0


class Alarm:
    """Logs each kind of overdue work when it begins, now and then while it lasts, and when it is over.

    Waiting time in which there were no checks, as before a start, does not show that the work is stuck. So after such a
    gap nothing is logged until work could have become overdue again.
    """

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}
        self._looked_s = self._since_s = float("-inf")

    def tell(self, overdue: Waits, now_s: float) -> None:
        """Log work that becomes, stays or stops being overdue; ``now_s`` must only grow."""
        if now_s - self._looked_s > GAP_S:
            self._since_s = now_s
        self._looked_s = now_s
        if now_s - self._since_s < OVERDUE_S:
            return
        for name, waited_s in overdue.items():
            if now_s - self._told_s.get(name, float("-inf")) >= REPEAT_S:
                self._told_s[name] = now_s
                log.warning("overdue", what=name, waited_s=round(waited_s), carried_by=CARRIERS[name])
        for name in set(self._told_s) - set(overdue):
            del self._told_s[name]
            log.info("overdue_no_more", what=name)
