"""Ways of running the built-in model on one CPU core: a checkout's own, and OpenVINO's. Each takes an engine batch.

``benchmarks/engine.py`` imports this in a process for each checkout, whose own packages come first there.
"""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import MODEL, is_quick
from benchmarks.questions import Question
from compile.model import probes
from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.reference import TaskNetwork, runner_of, tensors, wrap
from compile.model.source import find_source
from compile.torch.cpu import cast, compile_trace, serialise, trace
from compile.torch.packing import packs
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.packing import settle
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.batching import smallest_fit
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, cut_to, parse_buckets
from corelane.engine.task import Window
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, TokenizedQuery
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions

Run = Callable[[WindowBatch], Logits]
Row = tuple[int, TokenizedQuery, Window]

#: Tokens of a window at most, and rows of OpenVINO's batches of any shape, which are sorted by length.
LENGTH, FREE_ROWS = 384, 8

#: Tokens, inputs and outputs of the matmul: BERT-base's widest.
MATMUL, QUICK_MATMUL = (1024, 768, 3072), (64, 64, 256)


def make_ways(
    questions: Sequence[Question], root: Path, *, others: bool
) -> tuple[dict[str, tuple[Run, list[WindowBatch]]], Callable[[], object], dict[str, Any]]:
    """Return each way with its batches, a packed matmul, and notes of the work; quickly of one layer alone."""
    with quiet_transformers():
        model = load_model(find_source(MODEL, root / "models"))
        if is_quick():
            model.network.bert.encoder.layer = model.network.bert.encoder.layer[:1]
        reference = wrap(model)
        rows = read_rows(model, questions)
        laddered, free = ladder_batches(model, rows), free_batches(model, rows)
        ways = {"Corelane bf16": (ours(reference, laddered[0]), laddered)}
        if others and (run := openvino(reference, laddered[0])) is not None:
            ways |= {"OpenVINO bf16, free shapes": (run, free), "OpenVINO bf16, ladder": (run, laddered)}
    lengths = [row[2].length for row in rows]
    weights = sum(each.weight.numel() for each in model.network.modules() if isinstance(each, torch.nn.Linear))
    config = model.network.config
    attention = 4 * sum(length**2 for length in lengths) * config.hidden_size * config.num_hidden_layers
    tokens, inputs, outputs = QUICK_MATMUL if is_quick() else MATMUL
    notes = {
        "questions": len(questions),
        "flop": 2 * sum(lengths) * weights + attention,
        "matmul_flop": 2 * tokens * inputs * outputs,
        "padding": {
            name: 1 - sum(lengths) / sum(batch.input_ids.size for batch in batches)
            for name, (_, batches) in ways.items()
        },
    }
    return ways, matmul_of(tokens, inputs, outputs), notes


def matmul_of(tokens: int, inputs: int, outputs: int) -> Callable[[], object]:
    """Return a matmul in bf16, packed where this CPU packs."""
    x, weight, bias = (
        torch.randn(shape, dtype=torch.bfloat16) for shape in ((tokens, inputs), (outputs, inputs), (outputs,))
    )
    if not packs("bf16"):
        return partial(torch.nn.functional.linear, x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return partial(torch.ops.mkldnn._linear_pointwise, x, packed, bias, "none", [], None)


def ours(reference: TaskNetwork, example: WindowBatch) -> Run:
    """Return the run of an artifact in bf16."""
    with torchscript_warnings_silenced():
        written = serialise(compile_trace(trace(cast(reference, "bf16"), example), "bf16"))
        return runner_of(settle(torch.jit.load(io.BytesIO(written)).eval()))


def openvino(reference: TaskNetwork, example: WindowBatch) -> Run | None:
    """Return OpenVINO's run with its hint for bf16, one stream, one thread; None where it is not installed."""
    try:
        import openvino as ov
    except ImportError:
        return None
    with torchscript_warnings_silenced():
        converted = ov.convert_model(trace(reference, example), example_input=tensors(example))
    options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "bf16"}
    request = ov.Core().compile_model(converted, "CPU", options).create_infer_request()

    def run(batch: WindowBatch) -> Logits:
        found = request.infer([batch.input_ids, batch.attention_mask, batch.token_type_ids], share_inputs=True)
        start, end = (np.array(part) for part in found.values())
        return (start, end)

    return run


def run_all(run: Run, batches: Sequence[WindowBatch]) -> None:
    """Run some batches."""
    for batch in batches:
        run(batch)


def read_rows(model: SourceModel, questions: Sequence[Question]) -> list[Row]:
    """Return all windows, the shortest first."""
    task = QuestionAnsweringTask(model.tokenizer, model.spec, LENGTH)
    queries = [Query(question.question, question.context, AnswerOptions(no_answer=False)) for question in questions]
    return sorted(probes.read_rows(task, queries), key=lambda row: row[2].length)


def fill(model: SourceModel, rows: Sequence[Row], length: int) -> WindowBatch:
    """Return a batch of these rows at a length."""
    task = QuestionAnsweringTask(model.tokenizer, model.spec, LENGTH)
    bucket = Bucket(length=length, rows=len(rows))
    return task.fill(bucket, [(read, window) for _, read, window in rows], len(rows))


def free_batches(model: SourceModel, rows: list[Row]) -> list[WindowBatch]:
    """Return batches as long as their longest row."""
    parts = [rows[at : at + FREE_ROWS] for at in range(0, len(rows), FREE_ROWS)]
    return [fill(model, part, part[-1][2].length) for part in parts]


def ladder_batches(model: SourceModel, rows: list[Row]) -> list[WindowBatch]:
    """Return batches of the default ladder, cut to their longest row as a worker does."""
    ladder = parse_buckets(DEFAULT_BUCKETS)
    by_bucket: dict[Bucket, list[Row]] = {}
    for row in rows:
        by_bucket.setdefault(smallest_fit(row[2].length, ladder), []).append(row)
    return [
        fill(model, part, min(bucket.length, cut_to(max(row[2].length for row in part))))
        for bucket, held in by_bucket.items()
        for part in (held[at : at + bucket.rows] for at in range(0, len(held), bucket.rows))
    ]
