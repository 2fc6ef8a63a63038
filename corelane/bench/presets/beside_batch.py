"""Presets of work beside questions: a document, a batch of one's own, a batch of another API key.

Rounds follow each other, each with the questions alone before and after the work. The ratio is that of p95 with the
work to p95 before it. The median over the rounds counts, so a moment in which other programs took the CPU does not.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from corelane.bench.batch_work import BatchWork, Documents, LinesJob
from corelane.bench.beside import BesidePlan, run_beside
from corelane.bench.plan import Plan
from corelane.bench.presets.preset import Outcome, Preset, Row, Stage
from corelane.bench.presets.tables import milliseconds
from corelane.bench.schema import Beside, Load
from corelane.bench.senders import Target
from corelane.bench.session import probe
from corelane.bench.workload import Questions
from corelane.client import Client

#: Rounds, and seconds of questions before, with and after the work.
ROUNDS, BEFORE_S, DURING_S, AFTER_S = 4, 20.0, 30.0, 10.0

#: The same in a quick run.
QUICK_ROUNDS, QUICK_S = 1, 1.0

#: Questions a second of a quick run.
QUICK_RATE = 8.0

#: Lengths of the questions where none are given.
LENGTHS, QUESTIONS = "words=lognormal(120,0.6)", 400

#: The key of the batch's owner where none is given: services that check no keys tell owners apart by them.
OTHER_KEY = "clk_bench_other"


@dataclass(frozen=True, slots=True)
class Work:
    """What is beside the questions: how it is made, and whose it is."""

    way: str
    make: Callable[[Client, Target, Questions, bool], BatchWork]
    is_foreign: bool = False


def documents(client: Client, target: Target, questions: Questions, quick: bool) -> BatchWork:
    """Return documents of a hundred pages, the next when one is read."""
    return Documents(client, target, questions, words=500 if quick else 50_000, count=1000)


def own_batch(client: Client, target: Target, questions: Questions, quick: bool) -> BatchWork:
    """Return a job that lasts longer than a round."""
    return LinesJob(client, target, questions, items=200 if quick else 20_000)


def foreign_batch(client: Client, target: Target, questions: Questions, quick: bool) -> BatchWork:
    """Return a flood."""
    return LinesJob(client, target, questions, items=200 if quick else 100_000)


def runner(work: Work) -> Callable[[Stage], Outcome]:
    """Return the function of a preset."""

    def run(stage: Stage) -> Outcome:
        questions = stage.of_length(LENGTHS, 20 if stage.quick else QUESTIONS)
        session = stage.session(questions, Plan(load=Load(kind="poisson", rate_per_s=QUICK_RATE, seed=stage.seed)))
        rate = QUICK_RATE if stage.quick else probe(stage.target, questions, session.plan, stage.cores).rate_per_s
        key = (stage.batch_key or OTHER_KEY) if work.is_foreign else stage.target.api_key
        before_s, during_s, after_s = (QUICK_S,) * 3 if stage.quick else (BEFORE_S, DURING_S, AFTER_S)
        plan = BesidePlan(
            rate_per_s=rate,
            warmup_s=0.5 if stage.quick else 3.0,
            before_s=before_s,
            after_s=after_s,
            cut_s=during_s,
            way=work.way,
            owner="foreign" if work.is_foreign else "own",
        )
        rounds = []
        for number in range(QUICK_ROUNDS if stage.quick else ROUNDS):
            stage.say(f"round {number + 1}: {rate:g} questions/s, {before_s:g} s alone, {during_s:g} s beside")
            with Client(stage.target.url, key) as client:
                doing = work.make(client, stage.target, questions, stage.quick)
                rounds.append(run_beside(stage.target, questions, doing, replace(plan, seed=stage.seed + number)))
        middle = statistics.median_low(each.ratio_p95 for each in rounds)
        shown = next(each for each in rounds if each.ratio_p95 == middle)
        invalid = list(dict.fromkeys(reason for each in rounds for reason in each.invalid))
        extra = {"ratios_p95": [round(each.ratio_p95, 3) for each in rounds], "median_ratio_p95": round(middle, 3)}
        rows = [row(number, each) for number, each in enumerate(rounds, 1)]
        return Outcome(session, [], rows, beside=shown, extra=extra, invalid=invalid)

    return run


def row(number: int, found: Beside) -> Row:
    """Return the row of a round."""
    return {
        "round": number,
        "questions/s": f"{found.rate_per_s or 0:g}",
        "before p50 / p95 / p99 ms": _three(found, "before"),
        "beside it": _three(found, "during"),
        "after": _three(found, "after"),
        "p95 ratio": f"{found.ratio_p95:.2f}",
        "done beside": f"{found.items_per_s:,.1f}/s",
    }


def _three(found: Beside, part: str) -> str:
    spread = getattr(found, part)
    return " / ".join(milliseconds(getattr(spread, name)) for name in ("p50", "p95", "p99"))


PRESETS = (
    Preset(
        "document-beside",
        "questions while documents of 50,000 words are read: p95 before, beside and after",
        runner(Work("documents", documents)),
    ),
    Preset(
        "own-batch",
        "questions while a batch of the same API key runs: p95 before, beside and after",
        runner(Work("lines", own_batch)),
    ),
    Preset(
        "foreign-batch",
        "questions while another API key has 100,000 items waiting: p95 before, beside and after",
        runner(Work("lines", foreign_batch, is_foreign=True)),
    ),
)
