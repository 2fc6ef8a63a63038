"""What the log tells of jobs at a core, with the request ids and traces they came with.

A line for what failed; at debug level also one for each job of a claim. The ids are asked for only where there is a
line to write: work that goes well costs nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from corelane.domain.request_context import trace_id
from corelane.log import get_logger
from corelane.store.dispatch import Claim, Dispatch, Outcome

log = get_logger(__name__)


class Journal:
    """Writes these lines. ``tells_all`` is for debug level."""

    def __init__(self, dispatch: Dispatch, *, tells_all: bool) -> None:
        self._dispatch = dispatch
        self._tells_all = tells_all

    def tell(self, committed: Mapping[str, Sequence[Outcome]], claim: Claim | None) -> None:
        """What one exchange with the store was about; raises StoreUnavailable."""
        failures = failed_items(outcome for outcomes in committed.values() for outcome in outcomes)
        claimed = Counter[str]()
        if self._tells_all and claim is not None:
            for ref, _ in claim.refs:
                claimed[ref.job] += ref.count
        if not failures and not claimed:
            return
        origins = self._dispatch.origins(list({job for job, _ in failures} | set(claimed)))
        ids = {
            job: {"job_id": job, "request_id": origin.request_id or None}
            | ({"trace_id": trace_id(origin.traceparent)} if origin.traceparent else {})
            for job, origin in origins.items()
        }
        for (job, code), items in failures.items():
            log.info("items_failed", items=items, code=code, **ids[job])
        for job, items in claimed.items():
            log.debug("items_claimed", items=items, **ids[job])


def failed_items(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], int]:
    """How many items of each job failed, and with which code."""
    found = Counter[tuple[str, str]]()
    for outcome in outcomes:
        for result in outcome.results:
            if result["status"] == "failed":
                found[outcome.ref.job, result["error"]["code"]] += 1
    return found
