"""Equal items through random steps, on a real Redis: every job ends once with its own answers, and nothing is left."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from corelane.domain.dispatch import Ref
from corelane.domain.jobs import Priority
from corelane.store.dispatch import Claim, SliceResults
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore

OPEN = ("queued", "running")

#: What a core answers: mostly an answer, else an error of the item itself, or one of the core.
ANSWERED, CODES = None, (None, None, None, "question_too_long", "run_failed")

STEPS = 90


@dataclass
class Game:
    """Jobs of few different questions, cores that answer or lose them, and callers who change their minds."""

    bench: Bench
    chance: random.Random
    cores: list[LoneCore]
    held: list[tuple[LoneCore, Claim]] = field(default_factory=list)
    asked: dict[str, list[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)

    def submit(self) -> None:
        # Questions go out of use, so that not all are answered before they are asked again.
        newest, count = len(self.asked) // 8, self.chance.choice([1, 1, 1, 2, 3, 6])
        questions = [f"question {newest}.{self.chance.randrange(3)}" for _ in range(count)]
        items = [Question(id=question, question=question, context="c") for question in questions]
        job = self.bench.submit(
            len(items),
            items=items,
            reuse=self.chance.random() < 0.9,
            priority=self.chance.choice(list(Priority)),
            expires_in_s=self.chance.choice([None, None, 100]),
            owner=self.chance.choice("ab"),
        )
        self.asked[job] = questions

    def claim(self) -> None:
        core = self.chance.choice(self.cores)
        if (claim := core.claim([VERSION], linger=self.chance.random() < 0.5)) is not None:
            self.held.append((core, claim))

    def answer(self) -> None:
        """Answer a claim, sometimes in two commits, and sometimes once more, as after a lost reply."""
        core, claim = self.held.pop(self.chance.randrange(len(self.held)))
        outcomes = [SliceResults(ref, self._results(ref, self.chance.choice(CODES))) for ref, _ in claim.refs]
        cut = self.chance.randrange(len(outcomes) + 1)
        for part in (outcomes[:cut], outcomes[cut:]):
            for _ in range(self.chance.choice([1, 1, 2])):
                core.commit(claim.lease, part)

    def _results(self, ref: Ref, code: str | None) -> list[dict[str, Any]]:
        error = None if code is None else {"code": code, "detail": 'a "detail" },{"index":1,"id":'}
        return [
            {
                "index": index,
                "id": self.asked[ref.job][index],
                "status": "succeeded" if code is None else "failed",
                "answer": None if code else {"text": self.asked[ref.job][index]},
                "answers": [],
                "no_answer_score": 0.5,
                "windows": 1,
                "error": error,
            }
            for index in range(ref.first, ref.first + ref.count)
        ]

    def hand_back(self) -> None:
        core, claim = self.held.pop(self.chance.randrange(len(self.held)))
        core.hand_back(claim.lease, claim.refs, self.bench.bell)

    def lose(self) -> None:
        """Have a lease lapse; the core may answer late."""
        _, claim = self.chance.choice(self.held)
        self.bench.raw.zadd("cl:leases", {claim.lease: 1}, xx=True)
        self.bench.upkeep.return_lapsed()

    def cancel(self) -> None:
        self.bench.cancel(self._recent())

    def delete(self) -> None:
        job = self._recent()
        self.bench.with_store(lambda store: store.delete(job))
        self.deleted.add(job)

    def expire(self) -> None:
        job = self._recent()
        if self.bench.raw.zadd("cl:expiring", {job: 1}, xx=True, ch=True):
            self.bench.raw.hset(f"cl:job:{{{job}}}", "expires_ms", 1)
            self.bench.upkeep.tend()

    def _recent(self) -> str:
        return self.chance.choice(list(self.asked)[-12:])

    def step(self) -> None:
        of_claims = [self.answer] * 8 + [self.hand_back, self.lose] if self.held else []
        of_jobs = [self.cancel, self.delete, self.expire] if self.asked else []
        steps: list[Callable[[], None]] = [self.submit] * 10 + [self.claim] * 8 + of_claims + of_jobs
        self.chance.choice(steps)()
        for job in self.asked.keys() - self.deleted:
            status = self.bench.raw.hget(f"cl:job:{{{job}}}", "status")
            assert self.ended.get(job, status) == status
            if status not in OPEN:
                self.ended[job] = status

    def finish(self) -> None:
        """Cancel or lose what is held, ask the same meanwhile, and answer all that waits."""
        for _, claim in self.held:
            self.submit()
            self.submit()
            if self.chance.random() < 0.5:
                for ref, _ in claim.refs:
                    self.bench.cancel(ref.job)
            self.bench.raw.zadd("cl:leases", {claim.lease: 1}, xx=True)
        self.bench.upkeep.return_lapsed()
        for core in self.cores:
            while (found := core.claim([VERSION], linger=False)) is not None:
                core.commit(found.lease, [SliceResults(ref, self._results(ref, ANSWERED)) for ref, _ in found.refs])

    def check(self, job: str) -> None:
        """Check that each item has one result, and that an answer is that of its question."""
        record, results, questions = self.bench.get(job), self.bench.results(job), self.asked[job]
        assert record.status.is_final
        assert record.succeeded + record.failed + record.canceled + record.expired == len(questions)
        assert [result["index"] for result in results] == list(range(len(questions)))
        right = [
            (result["id"], result["answer"]["text"]) == (question, question)
            for result, question in zip(results, questions, strict=True)
            if result["status"] == "succeeded"
        ]
        assert right == [True] * record.succeeded


@pytest.mark.parametrize("cache_bytes", [0, 100_000])
def test_every_job_ends_once_with_its_own_answers(bench: Bench, cache_bytes: int) -> None:
    bench.settings = bench.settings.model_copy(update={"reuse": True, "cache_bytes": cache_bytes})
    game = Game(bench, random.Random(cache_bytes), [bench.core(f"a/{number}") for number in range(3)])
    for _ in range(STEPS):
        game.step()
    game.finish()
    for job in game.asked.keys() - game.deleted:
        game.check(job)
    assert bench.waiting() == {}
    assert not bench.raw.exists("cl:computing", "cl:followed", "cl:owed", "cl:leases")
    assert not [*bench.raw.scan_iter("cl:followers:*"), *bench.raw.scan_iter("cl:claim:*")]
