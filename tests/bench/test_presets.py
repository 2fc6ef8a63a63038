"""Presets: their tables, the published rows beside them, and that each has a name of its own."""

import pytest

from corelane.bench.presets import PRESETS
from corelane.bench.presets.pipeline_vs_data import modes
from corelane.bench.presets.tables import (
    caption,
    markdown_table,
    milliseconds,
    published_row,
    replace_block,
    sources,
)
from corelane.bench.published import ALL_CORES, LATENCY_100, PIPELINE_VS_DATA
from corelane.bench.schema import Machine, ServiceInfo

MACHINE = Machine(cpu="AMD EPYC", cores=2, memory_bytes=8 << 30, amx=True, kernel="6.1", python="3.11.2")


def test_presets_are_those_that_the_documents_name() -> None:
    assert list(PRESETS) == [
        *("latency-100", "all-cores", "pipeline-vs-data"),
        *("document-beside", "own-batch", "foreign-batch"),
    ]
    assert [name for name, preset in PRESETS.items() if preset.own_services] == ["pipeline-vs-data"]


def test_published_rows_say_instance_date_and_source_and_what_is_not_stated() -> None:
    for each in (*LATENCY_100, *ALL_CORES, *PIPELINE_VS_DATA):
        assert each.instance
        assert each.date
        assert each.source
    assert LATENCY_100[0].figures["mean_s"] == pytest.approx(0.0565)
    assert LATENCY_100[0].date == "not stated"
    assert "not stated" in sources(LATENCY_100)


@pytest.mark.parametrize(
    ("instance", "per_s", "reserved", "on_demand"),
    [
        ("inf1.xlarge", 1180.7, 0.026, 0.054),
        ("inf1.6xlarge", 2009.1, 0.078, 0.163),
        ("inf2.xlarge", 950.05, 0.096, 0.222),
    ],
)
def test_costs_of_published_rows_follow_from_throughput_and_price(
    instance: str, per_s: float, reserved: float, on_demand: float
) -> None:
    [row] = [each for each in PIPELINE_VS_DATA if each.figures["items_per_s"] == per_s]
    assert row.instance == instance
    assert row.figures["cost_per_1m"] == on_demand
    assert row.figures["cost_per_1m_reserved"] == reserved


def test_table_has_measured_and_published_rows_in_the_same_columns() -> None:
    rows = [{"what": "here | there", "mean ms": "9.1"}, published_row(LATENCY_100[0])]
    assert markdown_table(rows).splitlines() == [
        "| what | mean ms | where |",
        "|---|---|---|",
        "| here \\| there | 9.1 |  |",
        "| published: BERT behind HTTP, 100 requests of 128 tokens | 56.5 | Inf1, size not stated, not stated |",
    ]


def test_times_have_three_digits_that_count() -> None:
    assert [milliseconds(each) for each in (None, 0.00123, 0.0565, 1.2345)] == ["", "1.23", "56.5", "1,234"]


def test_block_of_a_document_is_replaced_and_the_rest_kept() -> None:
    text = "a\n<!-- bench x: begin -->\nold\n<!-- bench x: end -->\nb\n"
    assert replace_block(text, "x", "new\n") == "a\n<!-- bench x: begin -->\nnew\n<!-- bench x: end -->\nb\n"
    assert replace_block(text, "y", "new") is None


def test_caption_names_machine_versions_date_and_command() -> None:
    service = ServiceInfo(url="http://x", version="0.4", model="qa-minilm@1", dtype="bf16", cores=["a/0", "a/1"])
    shown = caption(MACHINE, service, "2026-11-22T12:00:00Z", "corelane bench preset latency-100")
    for part in ("2026-11-22", "AMD EPYC, 2 CPUs, AMX", "Corelane 0.4", "qa-minilm@1 in bf16", "preset latency-100"):
        assert part in shown


def test_both_ways_use_all_cpus() -> None:
    assert [(mode.cores, mode.cpus_per_core) for mode in modes(4)] == [(4, 1), (1, 4)]
