"""``corelane bench beside FILE``: a batch beside small requests, and what each does to the other."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from corelane.cli.output import error_console
from corelane.plugins.lab.cli.options import WhatOptions, WhereOptions
from corelane.plugins.lab.cli.output import OutputOptions, finish
from corelane.plugins.lab.cli.session import modest_rate, report_of

if TYPE_CHECKING:
    from corelane.plugins.lab.beside import Tell

#: Longest time between two lines of progress, in seconds.
TOLD_S = 5.0

of_batch = partial(typer.Option, rich_help_panel="Batch")
of_requests = partial(typer.Option, rich_help_panel="Requests")


def beside(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The batch's items: SQuAD's layout, or JSON lines.")],
    where: WhereOptions,
    what: WhatOptions,
    outputs: OutputOptions,
    way: Annotated[
        Literal["lines", "batch"], of_batch(help="One job sent as lines, or a file for /v1/batches.")
    ] = "lines",
    items: Annotated[
        int | None,
        of_batch(min=1, help="Items of the batch: FILE's, again and again."),
    ] = None,
    batch_api_key: Annotated[
        str | None, of_batch(help="The batch's own API key; that of the requests if none.")
    ] = None,
    cut: Annotated[float | None, of_batch(min=0.1, help="Cancel the batch after so many seconds.")] = None,
    rate: Annotated[float | None, of_requests(help="Requests a second; a modest rate if not given.")] = None,
    before: Annotated[float, of_requests(min=0.1, help="Seconds of requests before.")] = 30.0,
    after: Annotated[float, of_requests(min=0.1, help="Seconds of requests after.")] = 30.0,
    warmup: Annotated[float, of_requests(min=0, help="Seconds of requests that are not counted.")] = 5.0,
    seed: Annotated[int, of_requests(help="Of arrivals and items.")] = 0,
) -> None:
    """Submit a file while requests arrive: its progress, and the p95 of the requests before, beside and after."""
    from corelane.client import Client
    from corelane.plugins.lab.batch_work import FileBatch, LinesJob
    from corelane.plugins.lab.beside import BesidePlan, run_beside
    from corelane.plugins.lab.load import RunPlan
    from corelane.plugins.lab.schema import Load
    from corelane.plugins.lab.session import Session
    from corelane.plugins.lab.workload import read_file

    with where.service() as target:
        target = replace(target, task=what.task_of(target))
        asked = read_file(file, seed=seed, task=target.task)
        workload = what.read_given(seed, target.task) or asked
        session = Session(target, workload, RunPlan(load=Load(kind="poisson", rate_per_s=rate or 1.0, seed=seed)))
        plan = BesidePlan(
            rate_per_s=rate or modest_rate(session),
            warmup_s=warmup,
            before_s=before,
            after_s=after,
            cut_s=cut,
            seed=seed,
            way=way,
            owner="own" if batch_api_key in (None, target.api_key) else "foreign",
        )
        items = items or len(asked.asked)
        with Client(target.url, batch_api_key or target.api_key) as client:
            work = (FileBatch if way == "batch" else LinesJob)(client, target, asked, items)
            found = run_beside(target, workload, work, plan, teller(items))
        report = report_of(session, [], "beside", ctx)
    report.beside = found
    report.extra["batch"] = asked.describe().model_dump() | {"file": file.name}
    report.invalid += found.invalid
    report.valid = not report.invalid
    finish(report, outputs)


def teller(items: int) -> "Tell":
    """Return a function that prints the progress on standard error: at each part, and at intervals."""
    told: dict[str, float] = {}

    def tell(part: str, at_s: float, done: int) -> None:
        if at_s - told.get(part, -TOLD_S) < TOLD_S:
            return
        told[part] = at_s
        text = f", {done:,} of {items:,} items" if part == "during" else ""
        error_console().print(f"{at_s:5.0f} s  {part} the batch{text}", style="dim")

    return tell
