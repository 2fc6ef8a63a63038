"""What one core has claimed and not yet committed: stretches of several claims, open until their items are answered."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corelane.domain.dispatch import SMALL_TOKENS, Ref
from corelane.domain.jobs import failed_result
from corelane.engine.runner import QueryRunner, nothing
from corelane.engine.text.tokenize import Query
from corelane.errors import CorelaneError
from corelane.store.dispatch import Claim, Look, Outcome, Stretch

#: Names a stretch in progress: its lease and its place in the claim.
Key = tuple[str, str]


#: A charge that is off by more than this is corrected while its stretch is in progress, others when it is committed.
CORRECT_TOKENS = 1024


@dataclass(slots=True)
class Open:
    """A stretch in progress; ``results`` fills up in any order.

    ``ref`` carries the tokens that were found, as far as its items were read (``unread`` were not), and for the others
    what was estimated; ``charged`` is what the store was told.
    """

    lease: str
    ref: Ref
    version: str
    ids: Sequence[str | None]
    left: int
    unread: int
    estimate: int
    charged: int
    found: int = 0
    results: dict[int, dict[str, Any]] = field(default_factory=dict)


class Docket:
    """Opens claims, runs batches, collects outcomes. Begins with runners that hold nothing. Not thread-safe.

    Runners may come and go between batches, but for one that is at work.
    """

    def __init__(self, runners: Mapping[str, QueryRunner]) -> None:
        self._runners = runners
        for runner in runners.values():
            runner.reset()
        self._open: dict[Key, Open] = {}
        self._turn = 0
        #: Outcomes to commit, by lease.
        self.done: dict[str, list[Outcome]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no item is in progress; outcomes may still wait to be committed."""
        return not self._open

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress and nothing waits to be committed."""
        return not self._open and not self.done

    def is_at(self, version: str) -> bool:
        """Whether items of a version are in progress."""
        return any(stretch.version == version for stretch in self._open.values())

    @property
    def leases(self) -> list[str]:
        """Leases that anything here depends on."""
        return list(dict.fromkeys([*(stretch.lease for stretch in self._open.values()), *self.done]))

    @property
    def jobs(self) -> list[str]:
        """Jobs that have items in progress."""
        return list(dict.fromkeys(stretch.ref.job for stretch in self._open.values()))

    @property
    def met(self) -> list[str]:
        """Return the lanes and lines of the stretches in progress; a lane only if a batch's worth of it is here."""
        small: Counter[str] = Counter()
        met: dict[str, None] = {}
        for stretch in self._open.values():
            ref = stretch.ref
            if ref.tokens <= SMALL_TOKENS:
                small[ref.lane] += ref.tokens
            else:
                met[ref.line] = None
        return [*met, *(lane for lane, tokens in small.items() if tokens >= SMALL_TOKENS)]

    def holds_document(self, most_tokens: int) -> bool:
        """Whether an item in progress is larger than any slice of several items."""
        return any(stretch.ref.tokens > most_tokens for stretch in self._open.values())

    def waiting_tokens(self, most_per_item: int) -> int:
        """Tokens in progress and not yet run, an item counting for ``most_per_item`` at most."""
        return sum(runner.waiting_tokens(most_per_item) for runner in self._runners.values())

    def open(self, claim: Claim, stretches: Sequence[Stretch]) -> None:
        """Take a claim in. Refs without payloads fail, so that their job ends; where it is gone, nobody is told."""
        found = {stretch.ref.key for stretch in stretches}
        gone = [Outcome(ref, lost_payloads(ref)) for ref, _ in claim.refs if ref.key not in found]
        if gone:
            self.done.setdefault(claim.lease, []).extend(gone)
        for version in dict.fromkeys(stretch.version for stretch in stretches):
            queries = []
            for stretch in (each for each in stretches if each.version == version):
                key = (claim.lease, stretch.ref.key)
                ids = [item[0] for item in stretch.items]
                self._open[key] = opened(claim.lease, stretch, ids)
                queries += [
                    ((key, i), _query(stretch, question, context))
                    for i, (_, question, context) in enumerate(stretch.items)
                ]
            self._runners[version].admit(queries)
            self._note_found(version)

    @property
    def overlaps(self) -> bool:
        """Whether a step has something else done while its batch runs."""
        return any(runner.overlaps for runner in self._runners.values())

    def step(self, meanwhile: Callable[[], None] = nothing) -> tuple[int, int]:
        """Run one batch of one model, each model in its turn; the items answered by it, and their estimated tokens.

        ``meanwhile`` is what a runner that overlaps has done while the batch runs; claims may be opened in it.
        """
        versions = list(dict.fromkeys(stretch.version for stretch in self._open.values()))
        self._turn += 1
        version = versions[self._turn % len(versions)]
        answered = self._runners[version].step(meanwhile)
        self._note_found(version)
        tokens = 0
        for (key, i), result in answered:
            stretch = self._open[key]
            tokens += stretch.ref.tokens // stretch.ref.count
            stretch.results[i] = {"index": stretch.ref.first + i, "id": stretch.ids[i], **result}
            stretch.left -= 1
            if stretch.left == 0:
                del self._open[key]
                results = [stretch.results[n] for n in range(len(stretch.ids))]
                self.done.setdefault(stretch.lease, []).append(Outcome(stretch.ref, results))
        return len(answered), tokens

    def _note_found(self, version: str) -> None:
        """Put what items were found to cost, when they were read, in the place of their estimates."""
        for (key, _), tokens in self._runners[version].found():
            if (stretch := self._open.get(key)) is not None:
                stretch.unread, stretch.found = stretch.unread - 1, stretch.found + tokens
                stretch.ref = replace(stretch.ref, tokens=stretch.found + stretch.unread * stretch.estimate)

    def corrections(self) -> list[tuple[str, Ref]]:
        """Return refs in progress whose charge is far off, by lease; what is near is corrected when it is committed."""
        found = []
        for stretch in self._open.values():
            if abs(stretch.ref.tokens - stretch.charged) > CORRECT_TOKENS:
                stretch.charged = stretch.ref.tokens
                found.append((stretch.lease, stretch.ref))
        return found

    def look(self) -> list[Look]:
        """The best answers so far of items in progress that take long, each about once a second."""
        looks = []
        for runner in self._runners.values():
            for found in runner.look():
                key, i = found.key
                stretch = self._open[key]
                data = {
                    "index": stretch.ref.first + i,
                    "id": stretch.ids[i],
                    "answer": found.result["answer"],
                    "no_answer_score": found.result["no_answer_score"],
                    "windows_done": found.windows_done,
                    "windows_total": found.windows_total,
                }
                looks.append(Look(stretch.lease, stretch.ref, data))
        return looks

    def settle(self, committed: Mapping[str, Sequence[Outcome]], refused: Mapping[str, int]) -> int:
        """Forget what was committed; a lease that was refused anything is lost, and its open stretches with it."""
        self.done = {lease: outcomes for lease, outcomes in self.done.items() if lease not in committed}
        lost = {lease for lease, count in refused.items() if count}
        self._close({key for key, stretch in self._open.items() if stretch.lease in lost})
        return sum(refused.values())

    def drop_jobs(self, jobs: Collection[str]) -> None:
        """Stop what nobody waits for any more; its stretches are committed without results, which frees them."""
        closing = {key for key, stretch in self._open.items() if stretch.ref.job in jobs}
        for stretch in (self._open[key] for key in closing):
            self.done.setdefault(stretch.lease, []).append(Outcome(stretch.ref, []))
        self._close(closing)

    def unfinished(self) -> dict[str, list[tuple[Ref, str]]]:
        """What is still open, with its version, by lease; it is no longer in progress here."""
        refs: dict[str, list[tuple[Ref, str]]] = {}
        for stretch in self._open.values():
            refs.setdefault(stretch.lease, []).append((stretch.ref, stretch.version))
        self._close(set(self._open))
        return refs

    def _close(self, keys: Collection[Key]) -> None:
        for key in keys:
            stretch = self._open.pop(key)
            self._runners[stretch.version].drop({(key, i) for i in range(len(stretch.ids))})


def opened(lease: str, stretch: Stretch, ids: Sequence[str | None]) -> Open:
    """Return a stretch as it is before any of its items was read."""
    ref, count = stretch.ref, len(ids)
    return Open(lease, ref, stretch.version, ids, count, count, ref.tokens // max(ref.count, 1), ref.tokens)


def _query(stretch: Stretch, question: str, context: str) -> Query:
    ref = stretch.ref
    return Query(question, context, stretch.options, ref.owner, ref.priority, ref.job)


def lost_payloads(ref: Ref) -> list[dict[str, Any]]:
    """The results of items whose questions are no longer in the store."""
    detail = "the question was lost from the store before it was answered; send it again"
    return [failed_result(ref.first + i, None, CorelaneError.code, detail) for i in range(ref.count)]
