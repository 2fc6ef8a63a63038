"""Ways of running a question-answering network on one CPU core, and the tasks of ``benchmarks/engine.py``.

Every way takes an engine batch and returns its logits. "seeds" is the usual beginning: an fp32 trace, one row a pass,
padded to 128 (longer rows to 384). "loop" is transformers' network cast to bf16, rows of any shape.
"""

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.questions import questions_of
from benchmarks.runs import is_quick
from compile.model import probes
from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.reference import QuestionAnswering, runner_of, tensors, wrap
from compile.model.source import find_source
from compile.torch.cpu import cast, compile_trace, serialise, trace
from compile.torch.packing import packs
from corelane.artifacts.manifest import MANIFEST_NAME, read_artifact
from corelane.domain.jobs import Options
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.packing import settle
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.backends.registry import open_backend
from corelane.engine.batching import smallest_fit
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, cut_to, parse_buckets
from corelane.engine.question_answering.spans import find_spans
from corelane.engine.question_answering.task import QuestionAnsweringTask, TokenizedQuery
from corelane.engine.task import Query
from corelane.engine.windows import Window
from corelane.quality.squad import Question, best_over, token_f1

HERE = Path(__file__).parent
DEFAULT_FILE = HERE.parent.parent / "shared" / "data" / "squad-dev-v1.1.json.gz"

Run = Callable[[Batch], Logits]
Tasks = dict[str, Callable[[], object]]

#: BERT-base: rows tried at each length. 16 rows of 384 are 6,144 tokens, ten seconds a pass of the slowest.
LADDER = {128: (1, 2, 4, 8, 16), 384: (1, 4)}

#: Shapes, layers and questions of a quick run.
QUICK_LADDER, QUICK_LAYERS, QUICK_QUESTIONS = (
    {128: (1,)},
    {"num_hidden_layers": 1, "hidden_size": 96, "vocab_size": 30_000},
    10,
)

#: Parts of the windows that the ways run interleaved.
SLICES = 5

#: One window of this many is run in the seeds' way.
SEEDS, SEEDS_SHARE = "seeds fp32", 10

#: Rows of the loop's batches, which are sorted by length.
LOOP_ROWS = 8


def ours(reference: QuestionAnswering, dtype: Any, example: Batch) -> Run:
    """Return the run of an artifact of this dtype."""
    with torchscript_warnings_silenced():
        written = serialise(compile_trace(trace(cast(reference, dtype), example), dtype))
        return runner_of(settle(torch.jit.load(io.BytesIO(written)).eval()))


def seeds(reference: QuestionAnswering, example: Batch) -> Run:
    """Return the run of an fp32 trace, one row a pass."""
    with torchscript_warnings_silenced():
        traced = trace(reference, example)

    def run(batch: Batch) -> Logits:
        parts = [
            runner_of(traced)(Batch(batch.bucket, *(array[row : row + 1] for array in arrays_of(batch))))
            for row in range(batch.rows)
        ]
        return Logits(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))

    return run


def loop(reference: QuestionAnswering) -> Run:
    """Return the run of transformers' own network in bf16, eager mode."""
    network = copy.deepcopy(reference.network).to(torch.bfloat16)
    network.set_attn_implementation("sdpa")
    return runner_of(QuestionAnswering(network, reference.passes_token_types).eval())


def openvino(reference: QuestionAnswering, precision: str, example: Batch) -> Run | None:
    """OpenVINO with its hint for a precision, one stream, one thread; None where it is not installed."""
    try:
        import openvino as ov
    except ImportError:
        return None
    with torchscript_warnings_silenced():
        converted = ov.convert_model(trace(reference, example), example_input=tensors(example))
    options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": precision}
    request = ov.Core().compile_model(converted, "CPU", options).create_infer_request()

    def run(batch: Batch) -> Logits:
        found = request.infer(list(arrays_of(batch)), share_inputs=True)
        start, end = (np.array(part) for part in found.values())
        return Logits(start, end)

    return run


def onnx_runtime(reference: QuestionAnswering, example: Batch) -> Run | None:
    """ONNX Runtime in fp32, all of its optimisations, one thread; None where it is not installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "rows", 1: "length"} for name in [*names, "start", "end"]}
    with tempfile.TemporaryDirectory() as folder, torchscript_warnings_silenced():
        path = Path(folder) / "model.onnx"
        with contextlib.redirect_stdout(io.StringIO()):
            torch.onnx.export(
                reference,
                tensors(example),
                str(path),
                input_names=names,
                output_names=["start", "end"],
                dynamic_axes=axes,
                dynamo=False,
                opset_version=17,
            )
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(batch: Batch) -> Logits:
        start, end = session.run(["start", "end"], dict(zip(names, arrays_of(batch), strict=True)))
        return Logits(start, end)

    return run


def arrays_of(batch: Batch) -> tuple[Any, Any, Any]:
    """Return the batch as arguments, in order."""
    return batch.input_ids, batch.attention_mask, batch.token_type_ids


def dtypes() -> tuple[str, ...]:
    """Return the dtypes that the network is compiled in."""
    return ("fp32",) if is_quick() else ("fp32", "bf16", "int8")


def others(reference: QuestionAnswering, example: Batch) -> dict[str, Run]:
    """Return the yardsticks that are installed; none in a quick run, as converting takes long."""
    if is_quick():
        return {}
    found = {
        "openvino fp32": openvino(reference, "f32", example),
        "openvino bf16": openvino(reference, "bf16", example),
        "onnxruntime fp32": onnx_runtime(reference, example),
    }
    return {name: run for name, run in found.items() if run is not None}


def random_batch(bucket: Bucket) -> Batch:
    """Full rows of random tokens."""
    ids = np.random.default_rng(0).integers(1000, 30000, (bucket.rows, bucket.length))
    return Batch(bucket, ids, np.ones_like(ids), np.zeros_like(ids))


def all_tasks(arguments: list[str]) -> tuple[Tasks, dict[str, Any]]:
    """Return the tasks of all parts, and the notes of each part."""
    tasks: Tasks = {}
    notes: dict[str, Any] = {}
    for name, make in (("rates", rate_tasks), ("base", base_tasks), ("mix", mix_tasks)):
        found, notes[name] = make(arguments)
        tasks |= {f"{name} {task}": run for task, run in found.items()}
    return tasks, notes


def rate_tasks(_: list[str]) -> tuple[Tasks, dict[str, Any]]:
    """Multiply 1,024 tokens with BERT-base's 768 × 3,072 weights, in each dtype and way."""
    tokens, inputs, outputs = (64, 64, 256) if is_quick() else (1024, 768, 3072)
    rows, weight, bias = torch.randn(tokens, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    tasks: Tasks = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        x, w, b = rows.to(dtype), weight.to(dtype), bias.to(dtype)
        tasks[f"{name} plain"] = partial(torch.nn.functional.linear, x, w, b)
        if packs(name):
            packed = torch.ops.mkldnn._reorder_linear_weight(w)
            tasks[f"{name} packed"] = partial(torch.ops.mkldnn._linear_pointwise, x, packed, b, "none", [], None)
    x8, w8 = (torch.randint(-127, 127, shape, dtype=torch.int8) for shape in ((tokens, inputs), (outputs, inputs)))
    tasks["int8"] = lambda: torch._int_mm(x8, w8.t())
    return tasks, {"flop": 2 * tokens * inputs * outputs}


def base_tasks(_: list[str]) -> tuple[Tasks, dict[str, Any]]:
    """BERT-base with random weights: each way at each shape."""
    from transformers import BertConfig, BertForQuestionAnswering, set_seed

    set_seed(0)
    config = BertConfig(**QUICK_LAYERS) if is_quick() else BertConfig()
    network = BertForQuestionAnswering._from_config(config, attn_implementation="eager").eval()
    reference = QuestionAnswering(network, passes_token_types=True).eval()
    example = random_batch(Bucket(length=128, rows=2))
    with quiet_transformers():
        ways = {f"ours {dtype}": ours(reference, dtype, example) for dtype in dtypes()}
        ways |= {"loop bf16": loop(reference)} | others(reference, example)
    tasks: Tasks = {}
    flop: dict[str, int] = {}
    for length, ladder in (QUICK_LADDER if is_quick() else LADDER).items():
        batches = [random_batch(Bucket(length=length, rows=rows)) for rows in ladder]
        tasks[f"seeds fp32, 1x{length}"] = partial(seeds(reference, batches[0]), batches[0])
        for batch in batches:
            flop[str(batch.bucket)] = batch.rows * length * (2 * 85_054_464 + 12 * 4 * length * 768)
            for name, run in ways.items():
                tasks[f"{name}, {batch.bucket}"] = partial(run, batch)
    return tasks, {"flop": flop}


def run_all(run: Run, batches: Sequence[Batch]) -> None:
    """One pass over all batches."""
    for batch in batches:
        run(batch)


Row = tuple[int, TokenizedQuery, Window]


def mix_tasks(arguments: list[str]) -> tuple[Tasks, dict[str, Any]]:
    """Run the built-in model over the windows of a file's questions; note the answers of each way.

    "seeds" runs a tenth of the windows, being slow and as fast on any part of them.
    """
    limit = int(arguments[arguments.index("--limit") + 1]) if "--limit" in arguments else 20
    files = [argument for argument in arguments if argument.endswith(".gz")]
    folders = [Path(argument) for argument in arguments if (Path(argument) / MANIFEST_NAME).is_file()]
    path = Path(files[0]) if files else None if is_quick() else DEFAULT_FILE
    known = questions_of(path)
    limit = min(limit, QUICK_QUESTIONS) if is_quick() else limit
    questions = known[:: max(1, len(known) // limit)][:limit]
    with quiet_transformers():
        model = load_model(find_source("qa-minilm", HERE.parent / "models"))
        if is_quick():
            model.network.bert.encoder.layer = model.network.bert.encoder.layer[:1]
        reference = wrap(model)
        rows = read_rows(model, questions)
        free, laddered = free_batches(model, rows), ladder_batches(model, rows)
        padded = one_row_batches(model, rows[::SEEDS_SHARE])
        example = laddered[0][1]
        ways: dict[str, tuple[Run, list[tuple[Sequence[Row], Batch]]]] = {
            SEEDS: (seeds(reference, padded[0][1]), padded),
            "loop bf16": (loop(reference), free),
        }
        ways |= {f"ours {dtype}": (ours(reference, dtype, example), laddered) for dtype in dtypes()}
        ways |= {f"artifact {number}": (serving(folder), laddered) for number, folder in enumerate(folders)}
        for name, run in others(reference, example).items():
            ways |= {f"{name}, free": (run, free)} | ({f"{name}, ladder": (run, laddered)} if "bf16" in name else {})
    tasks: Tasks = {
        f"{name} / {part}": partial(run_all, run, [batch for _, batch in batches[part::SLICES]])
        for part in range(SLICES)
        for name, (run, batches) in ways.items()
    }
    with torch.inference_mode():
        answers = {name: answer(run, batches, questions) for name, (run, batches) in ways.items() if name != SEEDS}
    run_all(*ways[SEEDS][:1], [batch for _, batch in padded])
    exact = answers["ours fp32"]
    notes = {
        "questions": len(questions),
        "windows": len(rows),
        "artifacts": [str(read_artifact(folder).manifest.format) for folder in folders],
        "seeds_share": 1 / SEEDS_SHARE,
        "f1": {name: 100 * sum(f1_of(questions, given)) / len(questions) for name, given in answers.items()},
        "answers_equal": {
            name: sum(one == other for one, other in zip(given, exact, strict=True)) / len(exact)
            for name, given in answers.items()
        },
    }
    return tasks, json.loads(json.dumps(notes))


def serving(folder: Path) -> Run:
    """Return the run that a worker makes of an artifact."""
    backend = open_backend("cpu")
    return partial(backend.run, backend.load(read_artifact(folder)))


def read_rows(model: SourceModel, questions: Sequence[Question]) -> list[Row]:
    """All windows of up to 384 tokens, the shortest first."""
    task = QuestionAnsweringTask(model.tokenizer, model.spec, 384)
    queries = [Query(question.question, question.context, Options(no_answer=False)) for question in questions]
    return sorted(probes.read_rows(task, queries), key=lambda row: row[2].length)


def fill(model: SourceModel, rows: Sequence[Row], length: int) -> tuple[Sequence[Row], Batch]:
    """Return a batch of these rows at a length."""
    task = QuestionAnsweringTask(model.tokenizer, model.spec, 384)
    bucket = Bucket(length=length, rows=len(rows))
    return rows, task.fill(bucket, [(read, window) for _, read, window in rows], len(rows))


def free_batches(model: SourceModel, rows: list[Row]) -> list[tuple[Sequence[Row], Batch]]:
    """Batches as long as their longest row."""
    parts = [rows[at : at + LOOP_ROWS] for at in range(0, len(rows), LOOP_ROWS)]
    return [fill(model, part, part[-1][2].length) for part in parts]


def ladder_batches(model: SourceModel, rows: list[Row]) -> list[tuple[Sequence[Row], Batch]]:
    """Batches of the default ladder, cut to their longest row as a worker does."""
    ladder = parse_buckets(DEFAULT_BUCKETS)
    by_bucket: dict[Bucket, list[Row]] = {}
    for row in rows:
        by_bucket.setdefault(smallest_fit(row[2].length, ladder), []).append(row)
    return [
        fill(model, part, min(bucket.length, cut_to(max(row[2].length for row in part))))
        for bucket, held in by_bucket.items()
        for part in (held[at : at + bucket.rows] for at in range(0, len(held), bucket.rows))
    ]


def one_row_batches(model: SourceModel, rows: list[Row]) -> list[tuple[Sequence[Row], Batch]]:
    """One row a batch, of 128 tokens or else 384."""
    return [fill(model, [row], 128 if row[2].length <= 128 else 384) for row in rows]


def answer(run: Run, batches: Sequence[tuple[Sequence[Row], Batch]], questions: Sequence[Question]) -> list[str]:
    """Return the best span of each question over its windows, as text."""
    best: dict[int, tuple[float, str]] = {}
    for rows, batch in batches:
        logits = run(batch)
        for at, (item, reading, window) in enumerate(rows):
            part = (logits.start[at : at + 1], logits.end[at : at + 1])
            limits = (np.array([reading.context_at]), np.array([window.length - 1]))
            found = find_spans(*part, *limits, max_answer_tokens=30, keep=1)[0]
            shift = window.start - reading.context_at
            for start, end, margin in zip(found.starts, found.ends, found.margins, strict=True):
                places = reading.context.places[[int(start) + shift, int(end) + shift]]
                text = questions[item].context[places[0][0] : places[1][1]]
                best[item] = max(best.get(item, (float("-inf"), "")), (float(margin), text))
    return [best.get(item, (0.0, ""))[1] for item in range(len(questions))]


def f1_of(questions: Sequence[Question], answers: Sequence[str]) -> list[float]:
    """Return the F1 of each answer, 0 to 1."""
    return [best_over(token_f1, given, question.references) for question, given in zip(questions, answers, strict=True)]
