"""Alarms: log work that could go on but has waited too long."""

from corelane.log import get_logger
from corelane.store.overdue import CARRIERS, OVERDUE_S, Waits

log = get_logger(__name__)

#: What stays overdue is told again after this, in seconds.
REPEAT_S = 120.0

#: A longer pause between two looks means that nobody looked: the process was stopped, or Redis away. In seconds.
GAP_S = 15.0


class Alarm:
    """Tells of each thing that is overdue when that begins, now and then while it lasts, and when it is over.

    What waited while nobody looked, as before a start, is no sign that nobody carries it on: who looks again tells of
    it once it could have been carried on for as long as makes work overdue.
    """

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}
        self._looked_s = self._since_s = float("-inf")

    def tell(self, overdue: Waits, now_s: float) -> None:
        """Tell what there is to tell of what is overdue now, at a time that only grows."""
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
