"""Presets of work beside small requests: a document, a batch with the same API key, a batch with another API key.

There are several rounds, each with the requests alone before and after the work. The ratio is p95 during the work to
p95 before it. The result is the median of the rounds, so a moment in which other programs used the CPU has no effect.
"""

from dataclasses import replace
from functools import partial
from itertools import groupby

from corelane.client import Client
from corelane.plugins.lab.batch_work import BatchWork, LinesJob
from corelane.plugins.lab.beside import BesidePlan, run_beside
from corelane.plugins.lab.presets.preset import Preset, PresetOutcome, Row, Stage
from corelane.plugins.lab.presets.tables import milliseconds
from corelane.plugins.lab.schema import Beside
from corelane.plugins.lab.session import Session, probe

#: Rounds; seconds of requests before, with and after the work; seconds of small jobs before the work and after it.
ROUNDS, BEFORE_S, DURING_S, AFTER_S, JOBS_S = 4, 20.0, 30.0, 10.0, 40.0

#: In a quick run: seconds of each part, requests a second, and items in a small job.
QUICK_S, QUICK_RATE, QUICK_ITEMS = 1.0, 8.0, 2

#: Default lengths and number of the items.
LENGTHS, ITEMS = "words=lognormal(120,0.6)", 400

#: Items in the other owner's small jobs.
JOB_ITEMS = 20

#: The default key of the batch's owner. Where keys are not checked, all callers are one owner.
OTHER_KEY = "clk_bench_other"


def run(stage: Stage, way: str, *, is_foreign: bool = False, asked: tuple[int, ...] = (1,)) -> PresetOutcome:
    """Run the rounds. ``asked`` holds the numbers of items per request; each number has its own rounds."""
    workload = stage.of_length(LENGTHS, 20 if stage.quick else ITEMS)
    session = stage.session(workload)
    rate = QUICK_RATE if stage.quick else probe(stage.target, workload, session.plan, stage.cores)[0]
    key = (stage.batch_key or OTHER_KEY) if is_foreign else stage.target.api_key
    before_s, during_s, after_s = (QUICK_S,) * 3 if stage.quick else (BEFORE_S, DURING_S, AFTER_S)
    plan = BesidePlan(
        rate_per_s=rate,
        warmup_s=0.5 if stage.quick else 3.0,
        before_s=before_s,
        after_s=after_s,
        cut_s=during_s,
        way=way,
        owner="foreign" if is_foreign else "own",
    )
    rounds: list[Beside] = []
    for items in asked:
        for number in range(1 if stage.quick else ROUNDS):
            own = replace(plan, seed=stage.seed + number)
            if items > 1 and stage.quick:
                own = replace(own, items_per_job=QUICK_ITEMS)
            elif items > 1:
                # The same rate of items in fewer requests, so more time is needed for a result.
                own = replace(own, items_per_job=items, rate_per_s=rate / items, before_s=JOBS_S, after_s=JOBS_S)
            stage.say(
                f"round {len(rounds) + 1}: {own.before_s:g} s alone, {during_s:g} s beside, {own.after_s:g} s alone"
            )
            with Client(stage.target.url, key) as client:
                work: BatchWork
                if way == "documents":  # of a hundred pages, the next when one is read
                    texts = [text for _, text in workload.parts()]
                    work = workload.bench.long_work(client, stage.target, texts, 500 if stage.quick else 50_000)
                else:  # a job that outlasts any round
                    work = LinesJob(client, stage.target, workload, items=200 if stage.quick else 100_000)
                rounds.append(run_beside(stage.target, workload, work, own))
    return outcome_of(session, rounds)


def outcome_of(session: Session, rounds: list[Beside]) -> PresetOutcome:
    """Return the rounds as rows; ``beside`` is the round with the (lower) median ratio of the first ``asked``."""
    middles = {}
    for items, found in groupby(rounds, key=lambda each: each.items_per_job):
        ordered = sorted(found, key=lambda each: each.ratio_p95)
        middles[items] = ordered[(len(ordered) - 1) // 2]
    extra = {
        "ratios_p95": [round(each.ratio_p95, 3) for each in rounds],
        "median_ratio_p95": {str(items): round(each.ratio_p95, 3) for items, each in middles.items()},
    }
    rows = [row(number, each) for number, each in enumerate(rounds, 1)]
    invalid = list(dict.fromkeys(reason for each in rounds for reason in each.invalid))
    return PresetOutcome(session, [], rows, beside=next(iter(middles.values())), extra=extra, invalid=invalid)


def row(number: int, found: Beside) -> Row:
    """Return the row of a round."""
    before, during, after = (
        " / ".join(milliseconds(getattr(spread, name)) for name in ("p50", "p95", "p99"))
        for spread in (found.before, found.during, found.after)
    )
    return {
        "round": number,
        "asked": "lone items" if found.items_per_job == 1 else f"jobs of {found.items_per_job}",
        "a second": f"{found.rate_per_s or 0:.3g}",
        "before p50 / p95 / p99 ms": before,
        "beside it": during,
        "after": after,
        "p95 ratio": f"{found.ratio_p95:.2f}",
        "p99 ratio": f"{found.during.p99 / found.before.p99:.2f}",
        "done beside": f"{found.items_per_s:,.1f}/s",
    }


PRESETS = (
    Preset(
        "document-beside",
        "requests while documents of 50,000 words are read: p95 before, beside and after",
        partial(run, way="documents"),
    ),
    Preset(
        "own-batch",
        "requests while the same API key has 100,000 items waiting: p95 before, beside and after",
        partial(run, way="lines"),
    ),
    Preset(
        "foreign-batch",
        "requests while another API key has 100,000 items waiting: p95 before, beside and after",
        partial(run, way="lines", is_foreign=True, asked=(1, JOB_ITEMS)),
    ),
)
