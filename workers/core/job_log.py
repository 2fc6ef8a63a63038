"""What a core logs of jobs: items that failed, and at debug level what it claims."""

from collections import Counter
from collections.abc import Sequence

from corelane.domain.request_context import trace_id
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.store.dispatch import Dispatch
from workers.core.observer import CoreObserver, Trip

log = get_logger(__name__)


class JobLog(CoreObserver):
    """Logs jobs with the request ids and traces they came with.

    The ids are asked for only where there is a line to write: work that goes well costs nothing.
    """

    def __init__(self, dispatch: Dispatch, *, is_verbose: bool) -> None:
        """``is_verbose`` asks for a line for each job of a claim."""
        self._dispatch = dispatch
        self._is_verbose = is_verbose

    def committed(self, trip: Trip) -> None:
        """Log what a trip committed and claimed."""
        failures = Counter(
            (outcome.ref.job, result["error"]["code"])
            for outcomes in trip.request.commits.values()
            for outcome in outcomes
            for result in outcome.results
            if result["status"] == "failed"
        )
        claimed = Counter[str]()
        if self._is_verbose and trip.reply.claim is not None:
            for ref, _ in trip.reply.claim.refs:
                claimed[ref.job] += ref.count
        if not failures and not claimed:
            return
        ids = self._ids(list({job for job, _ in failures} | set(claimed)))
        for (job, code), items in failures.items():
            log.info("items_failed", items=items, code=code, **ids[job])
        for job, items in claimed.items():
            log.debug("items_claimed", items=items, **ids[job])

    def _ids(self, jobs: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Return what names each job in a line; without Redis its id alone."""
        try:
            origins = self._dispatch.request_contexts(jobs)
        except Unavailable:
            return {job: {"job_id": job} for job in jobs}
        return {
            job: {"job_id": job, "request_id": origin.request_id or None}
            | ({"trace_id": trace_id(origin.traceparent)} if origin.traceparent else {})
            for job, origin in origins.items()
        }
