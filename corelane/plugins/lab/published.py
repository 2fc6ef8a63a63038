"""Figures that others published, with instance, date and source, to read beside measured ones. Pure.

Costs of a million items are worked out here from throughput and the price of an hour, as the Neuron documents do:
``1e6 / items_per_s * usd_per_hour / 3600``. A field without a value says whether the source does not state
it, or it is not recorded here.
"""

from corelane.domain.instances import INSTANCES, PRICES_OF
from corelane.domain.prices import cost_per_million
from corelane.plugins.lab.schema import Published

NOT_STATED = "not stated"

#: The value of a field that the source states, but that is not recorded here.
NOT_NOTED = "not noted"

INF1 = "AWS Neuron documents, about-neuron/benchmarks/inf1"
INF2 = "AWS Neuron documents, about-neuron/benchmarks/inf2"
TRN1 = "AWS Neuron documents, about-neuron/benchmarks/trn1"

#: The days that the pages say they were last updated.
INF1_OF, INF2_OF = "2024-09-16", "2026-02-26"

#: 100 requests of shape [1, 128] to a model on Inf1, served by ECS.
LATENCY_100 = (
    Published(
        name="BERT on TensorFlow Serving over gRPC, 100 requests of shape [1, 128]",
        instance="inf1.xlarge",
        date=NOT_STATED,
        source="a published latency test on Amazon ECS",
        figures={"mean_s": 0.0565, "requests": 100, "tokens": 128, "batch": 1},
        note="Its mean is that of `np.average`. Other times, the date and the SDK are not stated.",
    ),
)

#: The parallel client of the sample for FastAPI on Inferentia.
ALL_CORES = (
    Published(
        name="run_apis.py: a server and a caller for each core, 1,000 requests each",
        instance="inf1.6xlarge, 6 of its 16 cores",
        date="2023-07",
        source="aws-samples/best-practices-for-fastapi-on-inferentia",
        figures={"requests": 1000},
        note="Its pictures show every core busy. Throughput and latency are printed by the script, but not published.",
    ),
)


def _row(
    model: str, instance: str, per_s: float, p50_ms: float, p99_ms: float, batch: int, mode: str, sdk: str
) -> Published:
    """Return a row of the documents' tables: BERT-size encoders, 128 tokens, throughput over the whole instance."""
    family, date = (INF1, INF1_OF) if instance.startswith("inf1") else (TRN1, INF2_OF)
    source = INF2 if instance.startswith("inf2") else family
    host = INSTANCES[instance]
    figures = {"items_per_s": per_s, "p50_s": p50_ms / 1000, "p99_s": p99_ms / 1000, "batch": float(batch)}
    for name, price in (("cost_per_1m", host.usd_per_hour), ("cost_per_1m_reserved", host.usd_reserved_per_hour)):
        if price:
            figures[name] = round(cost_per_million(price, per_s), 3)
    note = f"{mode}; {sdk}; prices of {PRICES_OF}"
    return Published(name=model, instance=instance, date=date, source=source, figures=figures, note=note)


#: Throughput of Inf1 in a published comparison with g4dn, for the rows that are recorded here.
AGAINST_G4DN = tuple(
    Published(
        name="sentences, Inf1 beside g4dn",
        instance=NOT_NOTED,
        date=NOT_NOTED,
        source="a published comparison of Inf1 with g4dn",
        figures={"items_per_s": per_s},
        note="Of that comparison its sentences/s are noted here. Its instances, costs and ratios are not.",
    )
    for per_s in (245.0, 291.0, 974.0, 1793.0)
)

#: Throughput and latency in several cores per model and several models side by side.
PIPELINE_VS_DATA = (
    _row("bert-base-uncased fp32", "inf1.xlarge", 1180.7, 40.6, 45.0, 6, "data parallel, 4 models x 2 workers",
         "Neuron 2.20.0, torch 1.13.1"),
    _row("bert-base-cased fp32", "inf1.xlarge", 1095.4, 58.3, 65.0, 8, "data parallel", "Neuron 2.20.0, torch 1.13.1"),
    _row("bert-base-cased-finetuned-mrpc", "inf1.xlarge", 1056.0, 20.0, 21.0, 4, "data parallel",
         "Neuron 2.20.0, torch 1.13"),
    _row("bert-base-uncased", "inf1.6xlarge", 2009.1, 5.9, 6.3, 1, "pipeline over 16 cores",
         "Neuron 2.20.0, torch 1.13"),
    _row("bert-base-cased", "inf1.xlarge", 125.7, 7.9, 8.0, 1, "one model, for latency", "Neuron 2.20.0"),
    _row("bert-base-uncased matmult bf16", "inf2.xlarge", 2674.19, 5.97, 6.17, 8, "data parallel",
         "Neuron 2.27.0, torch 2.9"),
    _row("bert-base-uncased matmult bf16", "inf2.xlarge", 1998.21, 0.999, 1.040, 1, "data parallel",
         "Neuron 2.26.0, torch 2.8"),
    _row("roberta-base", "inf2.xlarge", 2920.38, 5.42, 5.83, 8, "data parallel", "Neuron 2.25.0, torch 2.7"),
    _row("distilbert-base-uncased", "inf2.xlarge", 5307.88, 6.01, 6.23, 16, "data parallel",
         "Neuron 2.27.0, torch 2.9"),
    _row("bert-base-uncased", "trn1.2xlarge", 3421.57, 9.34, 9.42, 16, "data parallel", "Neuron 2.27.0, torch 2.9"),
    _row("bert-base-uncased", "trn1.2xlarge", 2085.45, 0.94, 1.03, 1, "data parallel", "Neuron 2.26.0, torch 2.8"),
    _row("bert-large-uncased", "inf2.xlarge", 950.05, 8.41, 8.85, 4, "data parallel", "Neuron 2.21.0, torch 2.5"),
)  # fmt: skip
