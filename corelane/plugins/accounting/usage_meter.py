"""The work that a core does for each job that it holds: tokens, and core seconds. Sent with the job's results.

Core seconds are CPU time if the CPU does the work, else time by the clock. A batch that jobs share is divided among
them by tokens. What is spent on a job that is dropped counts for nobody.
"""

from collections.abc import Collection, Mapping

from corelane.store.dispatch import ExchangeRequest
from workers.core.observer import CoreBatch, CoreObserver, HandBack, TokenizedSlices, Trip

#: Microseconds in a second.
US = 1_000_000


class UsageMeter(CoreObserver):
    """What a core spent on the jobs that it holds, and its core seconds since its process began."""

    def __init__(self) -> None:
        self.core_s = 0.0
        #: Tokens and core seconds of each job that were not stored yet.
        self._spent: dict[str, tuple[int, float]] = {}

    def contributes(self, request: ExchangeRequest) -> None:
        """Report what was spent on the jobs that have results."""
        jobs = dict.fromkeys(outcome.ref.job for outcomes in request.commits.values() for outcome in outcomes)
        request.spent = {job: self._report(job) for job in jobs if job in self._spent}

    def committed(self, trip: Trip) -> None:
        """Subtract the tokens and seconds that the trip stored. Forget jobs of which the core holds no more work."""
        held = {*trip.request.jobs, *trip.claimed}
        for job, (tokens, us) in trip.request.spent.items():
            before = self._spent.pop(job, (0, 0.0))
            if job in held:
                self._spent[job] = before[0] - tokens, before[1] - us / US

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Count the time of tokenizing."""
        self._share(tokenized.tokens, tokenized.core_s)

    def batch_finished(self, batch: CoreBatch) -> None:
        """Count the tokens and the time of a batch for the jobs in it."""
        self._share(batch.readers, batch.read_core_s)
        self._share(batch.tokens, batch.core_s - batch.read_core_s)
        for job in batch.windows:
            tokens, core_s = self._spent.get(job, (0, 0.0))
            self._spent[job] = tokens + batch.tokens[job], core_s

    def dropped(self, jobs: Collection[str]) -> None:
        """Forget jobs that were canceled, handed back, or lost with their lease."""
        for job in jobs:
            self._spent.pop(job, None)

    def hands_back(self, request: HandBack) -> None:
        """Put into the request how many tokens were read in vain."""
        jobs = dict.fromkeys(ref.job for ref, _ in request.refs)
        request.lost_tokens = sum(self._spent.pop(job, (0, 0.0))[0] for job in jobs)

    def beats(self, fields: dict[str, object]) -> None:
        """Report the core seconds of the process."""
        fields["core_s"] = round(self.core_s, 6)

    def _report(self, job: str) -> list[int]:
        tokens, core_s = self._spent[job]
        return [tokens, int(US * core_s)]

    def _share(self, tokens: Mapping[str, int], seconds: float) -> None:
        """Divide core seconds among jobs by their tokens."""
        if not tokens:
            return
        self.core_s += seconds
        a_token = seconds / max(1, sum(tokens.values()))
        for job, its_tokens in tokens.items():
            before = self._spent.get(job, (0, 0.0))
            self._spent[job] = before[0], before[1] + its_tokens * a_token
