"""Forward passes on one core: ours, those of OpenVINO and ONNX Runtime, and plain matrix products, in turn in one run.

    python benchmarks/engine.py [FILE.json.gz] [--before CHECKOUT] [--rounds 10] [--quick]

A figure is GFLOP/s of CPU time over the tokens that are no padding, so what a format spends on padding lowers it. Its
share of a plain matrix product holds across machines. Batches are made of the questions and sentences of a SQuAD-format
file, each with rows of neighbouring lengths, as the service makes them. The libraries that are not installed are left
out: `pip install openvino onnx onnxruntime`.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import MODEL, ROOT, about_machine, checkouts, compiled, environment, is_quick, parser_of
from benchmarks.questions import questions_of, texts_of
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import may_be_fast
from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.cpu import CpuBackend
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.cores import cpu_slots, keep_memory

#: The batches: title, the kind of texts, rows, and tokens of a row from and to.
BATCHES = (
    ("lone sentence", "text", 1, 16, 32),
    ("sentences", "text", 16, 16, 32),
    ("pairs of 128", "pair", 4, 112, 128),
    ("lone QA window", "pair", 1, 144, 192),
    ("QA windows", "pair", 4, 144, 192),
)

#: Batches of each kind, and rows, columns and depth of the plain product.
EACH, PRODUCT = 6, (512, 1536, 384)

#: Makes a batch's outputs from its ids, mask and token types.
Forward = Callable[[Sequence[Any]], object]


def rows_of(file: Path | None, tokenizer: Any) -> dict[str, list[list[int]]]:
    """Return rows of tokens by the kind of texts, the shortest first."""
    asked = questions_of(file)[: 40 if is_quick() else 600]
    pairs = tokenizer.encode_batch([(each.question, each.context) for each in asked])
    texts = tokenizer.encode_batch(texts_of(asked, 600))
    return {kind: sorted((each.ids for each in some), key=len) for kind, some in (("pair", pairs), ("text", texts))}


def batches_of(rows: Sequence[list[int]], count: int, least: int, most: int) -> list[Any]:
    """Return batches of rows with ``least`` to ``most`` tokens. Longer rows are cut, so there are always enough."""
    fitting = [row[:most] for row in rows if len(row) >= least]
    step = max(1, (len(fitting) - count) // EACH)
    made = []
    for number in range(1 if is_quick() else EACH):
        some = fitting[number * step :][:count] or rows[-1:]
        ids = np.zeros((len(some), max(map(len, some))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(some):
            ids[at, : len(row)], mask[at, : len(row)] = row, 1
        made.append((ids, mask, np.zeros_like(ids)))
    return made


def flops(batch: Sequence[Any], config: Any) -> float:
    """Return the operations that the tokens of a batch need: products with weights, and those of attentions."""
    lengths = batch[1].sum(axis=1)
    size, inner = config.hidden_size, config.intermediate_size
    linear = 2 * lengths.sum() * (4 * size * size + 2 * size * inner)
    return float(config.num_hidden_layers * (linear + 4 * size * (lengths**2).sum()))


def artifacts_of(before: Path | None, folder: Path) -> dict[str, Artifact]:
    """Compile ours, and return it by title: the default of each checkout, and int8 if OpenVINO is installed."""
    found = {
        name: find_artifact(*compiled(folder / name, checkout), "cpu") for name, checkout in checkouts(before).items()
    }
    if find_spec("openvino") and not is_quick():
        argv = [sys.executable, "-m", "corelane", "compile", MODEL, "--format", "openvino", "--dtype", "int8"]
        subprocess.run(argv, cwd=ROOT, env=environment(data_dir=folder / "int8"), check=True, capture_output=True)
        found["OpenVINO"] = find_artifact(folder / "int8" / "artifacts", MODEL, "cpu")
    return {f"Corelane {each.manifest.dtype}, {name}": each for name, each in found.items()}


def ours(artifact: Artifact) -> Forward:
    """Return the forward pass of an artifact, as a worker runs it."""
    backend = CpuBackend()
    model = backend.load(artifact)
    # All buckets share a file, which takes any rows and lengths.
    bucket = max(Bucket(length=each.length, rows=each.rows) for each in artifact.manifest.buckets)
    return lambda batch: backend.run(model, WindowBatch(bucket, *batch))


def theirs(network: Any, example: Sequence[Any], folder: Path) -> Iterator[tuple[str, Forward]]:
    """Yield the forward passes of torch without TorchScript and of the installed libraries, by title."""
    inputs = tuple(map(torch.from_numpy, example))
    shape = {0: torch.export.Dim("rows", min=1, max=256), 1: torch.export.Dim("length", min=8, max=512)}
    exported = torch.export.export(network, inputs, dynamic_shapes=(shape,) * 3).module()
    yield "torch.export fp32", lambda batch: exported(*map(torch.from_numpy, batch))
    with suppress(ImportError):
        import openvino

        graph = openvino.convert_model(torch.jit.trace(network, inputs, check_trace=False), example_input=inputs)
        hints = {"fp32": "f32"} | ({"bf16": "bf16"} if may_be_fast("bf16") else {})
        for dtype, hint in hints.items():
            options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": hint}
            request = openvino.Core().compile_model(graph, "CPU", options).create_infer_request()
            yield f"OpenVINO {dtype}", partial(infer, request)
    with suppress(ImportError):
        yield "ONNX Runtime fp32", onnx_pass(network, inputs, folder)


def infer(request: Any, batch: Sequence[Any]) -> object:
    """Run a pass of OpenVINO."""
    return request.infer(list(batch), share_inputs=True)


def load_eager() -> Any:
    """Return the body of the built-in model as a network of three inputs."""
    body = transformers.AutoModel.from_pretrained(
        ROOT / "models" / MODEL, dtype=torch.float32, add_pooling_layer=False
    ).eval()

    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            return self.body(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    return Body().eval()


def onnx_pass(network: Any, inputs: Sequence[Any], folder: Path) -> Forward:
    """Return the forward pass of ONNX Runtime, with its optimiser for BERT."""
    import onnx  # noqa: F401  # the export needs it
    import onnxruntime
    from onnxruntime.transformers import optimizer

    names, file = ["ids", "mask", "types"], folder / "model.onnx"
    axes = {name: {0: "rows", 1: "length"} for name in (*names, "out")}
    torch.onnx.export(
        network, tuple(inputs), file, input_names=names, output_names=["out"], dynamic_axes=axes, dynamo=False
    )
    config = network.body.config
    made = optimizer.optimize_model(
        str(file), model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    )
    made.save_model_to_file(str(folder / "optimised.onnx"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "optimised.onnx"), options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, dict(zip(names, batch, strict=True)))


def product_gflops() -> float:
    """Return the GFLOP/s of a plain matrix product in fp32 of the network's largest shape."""
    rows, columns, depth = PRODUCT
    left, right, out = torch.randn(rows, depth), torch.randn(depth, columns), torch.empty(rows, columns)
    began = time.process_time()
    for _ in range(2 if is_quick() else 40):
        torch.mm(left, right, out=out)
    return (2 if is_quick() else 40) * 2 * rows * columns * depth / (time.process_time() - began) / 1e9


def main() -> int:
    """Measure and print a table."""
    parser = parser_of(__doc__, rounds=10, takes_questions=True)
    options = parser.parse_args()
    os.sched_setaffinity(0, cpu_slots()[0].cpus)
    keep_memory()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="engine-") as made:
        folder = Path(made)
        artifacts = artifacts_of(options.before, folder)
        first = next(iter(artifacts.values()))
        tokenizer = Tokenizer.from_file(str(first.path / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        rows = rows_of(options.file, tokenizer)
        longest = first.manifest.max_length
        batches = {
            title: batches_of(rows[kind], count, *(min(most, longest) for most in lengths))
            for title, kind, count, *lengths in BATCHES
        }
        network = load_eager()
        passes = {title: ours(artifact) for title, artifact in artifacts.items()}
        passes |= theirs(network, batches["sentences"][0], folder)
        config = network.body.config
        seen: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds + 1):
            for title, some in batches.items():
                for name, run in passes.items():
                    began = time.process_time()
                    for batch in some:
                        run(batch)
                    took = time.process_time() - began
                    seen.setdefault((title, name), []).append(sum(flops(each, config) for each in some) / took / 1e9)
                seen.setdefault((title, "plain product"), []).append(product_gflops())
    print(f"{about_machine()}\n\n| GFLOP/s | {' | '.join(batches)} |\n|---|{'---:|' * len(batches)}")
    for name in (*passes, "plain product"):
        # The first round makes kernels. Neighbours only take time, so the best rounds are the core's own speed.
        cells = [max(seen[title, name][1:]) for title in batches]
        shares = [cell / max(seen[title, "plain product"]) for cell, title in zip(cells, batches, strict=True)]
        print(
            f"| {name} | {' | '.join(f'{cell:.1f} ({share:.2f})' for cell, share in zip(cells, shares, strict=True))} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
