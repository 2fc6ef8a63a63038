"""Presets: their tables, the published rows beside them, and that each has a name of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from corelane.domain.instances import INSTANCES
from corelane.domain.prices import HostPrice
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.presets import PRESETS, Stage, beside_batch
from corelane.plugins.lab.presets.points import core_rows
from corelane.plugins.lab.presets.tables import (
    published_row,
    replace_block,
    sources,
    table_of,
)
from corelane.plugins.lab.published import AGAINST_G4DN, LATENCY_100, PIPELINE_VS_DATA
from corelane.plugins.lab.schema import Beside, Load, LoadPoint, ServiceSplit, Spread
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import Session
from corelane.plugins.lab.workload import Workload
from tests.plugins.lab.queues import Queue


def test_presets_are_those_that_the_documents_name() -> None:
    assert list(PRESETS) == [
        *("latency-100", "all-cores", "pipeline-vs-data"),
        *("document-beside", "own-batch", "foreign-batch"),
    ]
    assert [name for name, preset in PRESETS.items() if preset.own_services] == ["pipeline-vs-data"]


@dataclass
class MadeUpStage(Stage):
    """A stage on a made-up service; ``asked`` are the settings and shapes of those that were started."""

    asked: list[tuple[Mapping[str, object], str]] = field(default_factory=list)

    def session(self, workload: Workload, *, requests: int = 1, target: Target | None = None) -> Session:
        plan = RunPlan(load=Load(kind="closed", concurrency=1), requests=requests)
        return MadeUpSession(target or self.target, workload, plan)


class MadeUpSession(Session):
    def measure(self, name: str, load: Load) -> LoadPoint:
        return Queue(cores=4).measure(name, load)


def stage(monkeypatch: pytest.MonkeyPatch) -> MadeUpStage:
    """Return a quick stage of four cores that cost 3.6 an hour."""
    monkeypatch.setattr("corelane.plugins.lab.presets.points.FLUSHED_S", 0.0)
    host = HostPrice(INSTANCES["inf1.xlarge"], 3.6, "EUR", None)

    def serve(settings: Mapping[str, object], bucket: str) -> Target:
        found.asked.append((settings, bucket))
        return Target("http://made.up")

    found = MadeUpStage(Target("http://made.up"), cores=4, quick=True, host=host, serve=serve)
    return found


def test_presets_of_points_have_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("latency-100", 1), ("all-cores", 2)):
        outcome = PRESETS[name].run(stage(monkeypatch))
        assert len(outcome.points) == len(outcome.rows) == count
        assert outcome.rows[0]["p95 ms"] == "20.0"
        cost, currency = outcome.rows[-1]["cost of 1M"].split()
        assert currency == "EUR"
    assert float(cost) == pytest.approx(5.0, rel=0.03)
    unpriced = stage(monkeypatch)
    unpriced.host = None
    [row] = PRESETS["latency-100"].run(unpriced).rows
    assert row["cost of 1M"] == "CORELANE_INSTANCE is not set"


def test_cores_have_rows_of_what_they_did() -> None:
    point = Queue().measure("1 caller a core", Load(kind="closed", concurrency=2, duration_s=1.0))
    point.runs[0].server = ServiceSplit(core_busy={"h/0": 0.91, "h/1": 0.9}, core_items={"h/0": 1200})
    rows = core_rows(point)
    assert [row["what"] for row in rows] == ["core h/0", "core h/1"]
    assert (rows[0]["items"], rows[0]["busy"], rows[1]["items"]) == ("1,200", "91%", "0")


def test_each_variant_has_a_service_of_its_own_and_a_ratio_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    used = stage(monkeypatch)
    outcome = PRESETS["pipeline-vs-data"].run(used)
    assert [bucket for _, bucket in used.asked] == ["1x128", "6x128", "1x128", "6x128"]
    assert [dict(settings) for settings, _ in used.asked[1:3]] == [
        {"cpus_per_core": 1, "cores": 4},
        {"cpus_per_core": 4, "cores": 1},
    ]
    modes = ("data parallel", "pipeline")
    assert [row["what"] for row in outcome.rows] == [f"{mode}, batch {rows}" for mode in modes for rows in (1, 6)]
    assert [row["ratio"] for row in outcome.rows] == ["1.00", "1.00", "0.50", "1.00"]
    assert all("EUR" in row["cost of 1M"] for row in outcome.rows)
    assert len(outcome.points) == 8


def test_round_with_the_median_ratio_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios: Iterator[float] = iter(())
    monkeypatch.setattr(beside_batch, "run_beside", lambda *given: beside(next(ratios), given[-1].items_per_job))
    monkeypatch.setattr(beside_batch, "probe", lambda *_: (3.0, 0.05))
    used = stage(monkeypatch)
    used.quick = False
    used.say = lambda _: None
    for name in ("document-beside", "own-batch", "foreign-batch"):
        ratios = iter((1.5, 9.0, 1.2, 1.4, 3.0, 3.0, 3.0, 3.0))
        outcome = PRESETS[name].run(used)
        assert outcome.beside is not None
        assert outcome.beside.ratio_p95 == pytest.approx(1.4)
        assert outcome.extra["ratios_p95"][:4] == [1.5, 9.0, 1.2, 1.4]
        assert [row["p95 ratio"] for row in outcome.rows][:4] == ["1.50", "9.00", "1.20", "1.40"]
    assert outcome.extra["median_ratio_p95"] == {"1": 1.4, "20": 3.0}
    assert outcome.rows[-1]["asked"] == "jobs of 20"


def beside(ratio: float, items_per_job: int) -> Beside:
    """Return what was measured beside a batch, with this ratio of p95."""
    before, during = (
        Spread(count=9, mean=p95, p50=p95, p90=p95, p95=p95, p99=p95, max=p95) for p95 in (0.1, 0.1 * ratio)
    )
    return Beside(
        items=10,
        makespan_s=2.0,
        first_result_s=0.1,
        items_per_s=5,
        progress=[],
        before=before,
        during=during,
        after=before,
        items_per_job=items_per_job,
    )


def test_published_rows_say_what_is_not_known_and_cost_what_their_host_does() -> None:
    assert published_row(AGAINST_G4DN[0])["where"] == "instance not noted; date not noted"
    assert "costs and ratios are not" in sources(AGAINST_G4DN)
    first = PIPELINE_VS_DATA[0].figures
    assert (first["items_per_s"], first["cost_per_1m"], first["cost_per_1m_reserved"]) == (1180.7, 0.054, 0.026)


def test_table_has_measured_and_published_rows_in_the_same_columns() -> None:
    rows = [{"what": "here | there", "mean ms": "9.1"}, published_row(LATENCY_100[0])]
    assert table_of(rows).splitlines() == [
        "| what | mean ms | where | batch |",
        "| --- | --- | --- | --- |",
        "| here \\| there | 9.1 |  |  |",
        "| published: BERT on TensorFlow Serving over gRPC, 100 requests of shape \\[1, 128\\] | 56.5 | "
        "inf1.xlarge; date not stated | 1 |",
    ]


def test_block_of_a_document_is_replaced_and_the_rest_kept() -> None:
    text = "a\n<!-- bench x: begin -->\nold\n<!-- bench x: end -->\nb\n"
    assert replace_block(text, "x", "new\n") == "a\n<!-- bench x: begin -->\nnew\n<!-- bench x: end -->\nb\n"
    assert replace_block(text, "y", "new") is None
