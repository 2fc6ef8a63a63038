"""``corelane bench compare`` and ``corelane bench ab``: whether two runs differ, or only look as if they did."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.folders import writable_folder
from corelane.cli.output import error_console, print_line, report_console
from corelane.cli.service import JsonOption, KeyOption
from corelane.plugins.lab.cli.options import LoadOptions, SendingOptions, WhatOptions
from corelane.plugins.lab.cli.output import INVALID, NOT_HELD, read_report, report_bytes, write_to
from corelane.plugins.lab.cli.session import report_of

if TYPE_CHECKING:
    from corelane.plugins.lab.compare import ReportComparison
    from corelane.plugins.lab.schema import Report

LeastOption = Annotated[
    float, typer.Option(min=0, max=1, help="The smallest difference of a time or rate that matters, as a share.")
]
GateOption = Annotated[bool, typer.Option("--gate", help="Exit with 1 if B is really worse in anything.")]


def compare_reports(
    a: Annotated[Path, typer.Argument(metavar="A", help="A report of `corelane bench --json`.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one that is compared with it.")],
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare runs that are unlike.")] = False,
    least: LeastOption = 0.02,
    drift: Annotated[
        float,
        typer.Option(min=0, max=1, help="How much the machine's speed differs between two sessions, as a share."),
    ] = 0.10,
    gate: GateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say of each figure whether two runs really differ, or by no more than noise."""
    from corelane.plugins.lab.compare import compare

    found = compare(read_report(a), read_report(b), anyway=anyway, least=least, drift=drift)
    show(found, as_json=as_json, gate=gate)


def compare_services(
    ctx: typer.Context,
    url_a: Annotated[str, typer.Argument(metavar="URL_A", help="A running service.")],
    url_b: Annotated[str, typer.Argument(metavar="URL_B", help="Another, or the same for another model.")],
    what: WhatOptions,
    offered: LoadOptions,
    sending: SendingOptions,
    api_key: KeyOption = None,
    model: Annotated[str, typer.Option(help="A model version, name or alias.")] = "default",
    other_model: Annotated[str | None, typer.Option(help="That of B, if it is another.")] = None,
    blocks: Annotated[int, typer.Option(min=3, help="Blocks of four slots: A B B A.")] = 10,
    slot: Annotated[
        int | None, typer.Option(min=1, help="Requests of a slot; 12 if not given, and 6 for each caller.")
    ] = None,
    least: LeastOption = 0.02,
    gate: GateOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write both reports, a.json and b.json, into a folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Offer two running services a load in turn, in blocks A B B A, and say whether they really differ.

    What drifts in the machine meanwhile meets both alike, so that small differences show. Without a load there are two
    callers in a closed loop.
    """
    from corelane.plugins.lab.compare import compare
    from corelane.plugins.lab.live import LiveView
    from corelane.plugins.lab.paired import measure_pair
    from corelane.plugins.lab.schema import Load
    from corelane.plugins.lab.senders import Target
    from corelane.plugins.lab.session import Session
    from corelane.settings import read_settings

    if out is not None:
        writable_folder(out)
    if api_key is None and (known := read_settings().api_key) is not None:
        api_key = known.get_secret_value()
    load = offered.load or Load(kind="closed", concurrency=2, seed=offered.seed)
    plan = offered.plan(sending, load)
    first = Target(url_a, api_key, model)
    workload = what.read(offered.seed, what.task_of(first, sending.sender))
    first = replace(first, task=workload.task, options=workload.options)
    targets = first, replace(first, url=url_b, model=other_model or model)
    with LiveView() as view:
        view.begin(f"{load.name}, A B B A")
        pair = measure_pair(targets, workload, plan, blocks=blocks, slot=slot, on_tick=view.on_tick)
    reports: list[Report] = []
    for target, (point, pairing) in zip(targets, pair, strict=True):
        report = report_of(Session(target, workload, plan), [point], "ab", ctx)
        report.pairing = pairing
        reports.append(report)
        if out is not None:
            write_to(out / f"{pairing.side.lower()}.json", report_bytes(report))
    if reasons := list(dict.fromkeys(reason for report in reports for reason in report.invalid)):
        for reason in reasons:
            error_console().print(f"invalid: {reason}", style="red")
        raise typer.Exit(INVALID)
    show(compare(*reports, anyway=True, least=least), as_json=as_json, gate=gate)


def show(found: "ReportComparison", *, as_json: bool, gate: bool) -> None:
    """Print a comparison; fail if B is really worse and ``gate`` asks for that."""
    from corelane.plugins.lab.render import comparison

    if as_json:
        print_line(found)
    else:
        report_console().print(comparison(found))
    if gate and found.is_worse:
        raise typer.Exit(NOT_HELD)
