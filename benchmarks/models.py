"""What a token costs by architecture: CPU time of random weights in the real shapes of models that people load.

A vocabulary costs nothing to run, so it is small here; the number of weights is that of the real one. Each model runs
batches of full rows on one core, compiled as ``corelane compile --dtype bf16`` does it. The built-in model's shape is
measured before and after each other one; its own cost then is 1.

    python benchmarks/models.py [--quick]

Prints the table of shapes of docs/28-models.md, the cheapest first.
"""

import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.harness import is_quick, parser_of
from compile.model.adapt import adapt
from compile.model.families import attend_in_full
from compile.model.loading import quiet_transformers
from compile.model.reference import TaskNetwork, tensors
from compile.model.timing import one_thread
from compile.tasks.task import compile_task
from compile.torch.cpu import cast, compile_trace, compiler_args, trace
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.backends.packing import settle
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket

#: A batch's shape: full rows of a common length.
ROWS, LENGTH = 8, 128

#: Timed batches of each turn.
BATCHES = 3

#: Costs of a token up to these are of a class; the last one has no bound.
CLASSES = {1.6: "fast", 4.5: "medium", 12.0: "slow"}
SLOWEST = "very slow"

#: Tokens of a vocabulary here.
VOCABULARY = 1000


@dataclass(frozen=True)
class Shape:
    """An architecture, and the settings of its config that are not the usual ones."""

    kind: str
    config: dict[str, Any] = field(default_factory=dict)


BASE = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
DEBERTA_V3 = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
ETTIN = {"vocab_size": 50368}

#: The built-in model's shape.
BUILT_IN = "MiniLM-L6"

SHAPES = {
    BUILT_IN: Shape("bert", {**SMALL, "num_hidden_layers": 6}),
    "MiniLM-L12": Shape("bert", {**SMALL, "num_hidden_layers": 12}),
    "ELECTRA-small": Shape("electra"),
    "Ettin-17m": Shape(
        "modernbert",
        {**ETTIN, "hidden_size": 256, "num_hidden_layers": 7, "num_attention_heads": 4, "intermediate_size": 384},
    ),
    "Ettin-68m": Shape(
        "modernbert",
        {**ETTIN, "hidden_size": 512, "num_hidden_layers": 19, "num_attention_heads": 8, "intermediate_size": 768},
    ),
    "DeBERTa-v3-xsmall": Shape(
        "deberta-v2",
        {
            **DEBERTA_V3,
            "hidden_size": 384,
            "num_hidden_layers": 12,
            "num_attention_heads": 6,
            "intermediate_size": 1536,
        },
    ),
    "DeBERTa-v3-small": Shape("deberta-v2", {**DEBERTA_V3, **BASE, "num_hidden_layers": 6}),
    "DeBERTa-v3-base": Shape("deberta-v2", {**DEBERTA_V3, **BASE}),
    "DistilBERT": Shape("distilbert"),
    "TinyBERT-6L": Shape("bert", {**BASE, "num_hidden_layers": 6}),
    "DistilRoBERTa": Shape("roberta", {**BASE, "num_hidden_layers": 6, "vocab_size": 50265}),
    "MobileBERT": Shape("mobilebert"),
    "SqueezeBERT": Shape("squeezebert"),
    "ALBERT-base": Shape(
        "albert", {**BASE, "embedding_size": 128, "vocab_size": 30000, "max_position_embeddings": 512}
    ),
    "ConvBERT-base": Shape("convbert"),
    "BERT-base": Shape("bert"),
    "ELECTRA-base": Shape("electra", {**BASE, "embedding_size": 768}),
    "RoBERTa-base": Shape("roberta", {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "MPNet-base": Shape("mpnet", {"vocab_size": 30527}),
    "ModernBERT-base": Shape("modernbert"),
    "XLM-R-base": Shape("xlm-roberta", {"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "mDeBERTa-v3-base": Shape("deberta-v2", {**DEBERTA_V3, **BASE, "vocab_size": 251000}),
    "Longformer-base": Shape(
        "longformer",
        {"vocab_size": 50265, "max_position_embeddings": 4098, "attention_window": [512] * 12, "sep_token_id": 2},
    ),
    "BigBird-base": Shape("big_bird", {"vocab_size": 50358}),
    "XLNet-base": Shape("xlnet", {"n_layer": 12, "d_model": 768, "n_head": 12, "d_inner": 3072}),
    "BERT-large": Shape(
        "bert",
        {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "DeBERTa-v3-large": Shape(
        "deberta-v2",
        {
            **DEBERTA_V3,
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
}


def make_network(shape: Shape) -> tuple[Any, int]:
    """Return a random network with a small vocabulary, and the number of weights with the real one."""
    from transformers import AutoConfig, AutoModelForQuestionAnswering, set_seed

    set_seed(7)
    config = AutoConfig.for_model(shape.kind, **shape.config)
    attend_in_full(config)
    words = int(config.vocab_size)
    config.vocab_size = VOCABULARY
    for name in ("pad", "bos", "eos", "sep", "cls"):
        if isinstance(number := getattr(config, f"{name}_token_id", None), int) and number >= VOCABULARY:
            setattr(config, f"{name}_token_id", 0)
    network = AutoModelForQuestionAnswering.from_config(config, attn_implementation="eager").eval()
    width = int(network.get_input_embeddings().weight.shape[1])
    return network, sum(each.numel() for each in network.parameters()) + (words - VOCABULARY) * width


def make_batch(rows: int, length: int) -> WindowBatch:
    """Return full rows of random tokens, with a separator after each eighth."""
    ids = np.random.default_rng(7).integers(10, VOCABULARY, (rows, length))
    ids[:, length // 8] = 2
    ones = np.ones_like(ids)
    return WindowBatch(Bucket(length=length, rows=rows), ids, ones, np.zeros_like(ids))


def compiled(shape: Shape, batch: WindowBatch) -> tuple[Any, int, list[str]]:
    """Return a network as a worker runs it, its weights and how it was compiled."""
    network, weights = make_network(shape)
    module = cast(TaskNetwork(adapt(network), False, compile_task(DEFAULT_TASK)).eval(), "bf16")
    arguments = compiler_args(module.network, "bf16")
    return settle(compile_trace(trace(module, batch), "bf16")), weights, arguments


def seconds_of(run: Any, batch: WindowBatch, count: int) -> list[float]:
    """Return the CPU time of each batch."""
    found = []
    for _ in range(count):
        began = time.process_time()
        with torch.inference_mode():
            run(*tensors(batch))
        found.append(time.process_time() - began)
    return found


def line_of(shape: str, kind: str, weights: int, cost: float, arguments: list[str]) -> str:
    """Return a shape's line of the table."""
    speed = next((name for most, name in CLASSES.items() if cost <= most), SLOWEST)
    padding = "left out" if "rows=ragged" in arguments else "computed"
    return f"| {shape} | {kind} | {weights / 1e6:.1f} | {cost:.2f} | {speed} | {padding} |"


def main() -> None:
    """Measure every shape beside the built-in one, and print the table."""
    parser_of(__doc__).parse_args()
    batch = make_batch(*((2, 32) if is_quick() else (ROWS, LENGTH)))
    shapes = {BUILT_IN: SHAPES[BUILT_IN]} if is_quick() else SHAPES
    lines: list[tuple[float, str]] = []
    with quiet_transformers(), one_thread():
        built_in, _, _ = compiled(SHAPES[BUILT_IN], batch)
        seconds_of(built_in, batch, BATCHES)
        for name, shape in shapes.items():
            run, weights, arguments = compiled(shape, batch)
            seconds_of(run, batch, 1)
            beside, own = [], []
            for _ in range(BATCHES):
                beside += seconds_of(built_in, batch, BATCHES)
                own += seconds_of(run, batch, 1)
            cost = statistics.median(own) / statistics.median(beside)
            lines.append((cost, line_of(name, shape.kind, weights, cost, arguments)))
            print(f"{name}: {batch.input_ids.size / statistics.median(own):,.0f} tokens a CPU second", file=sys.stderr)
    print("| shape | architecture | million weights | cost of a token | class | padding |\n|---|---|---:|---:|---|---|")
    print("\n".join(line for _, line in sorted(lines)))


if __name__ == "__main__":
    main()
