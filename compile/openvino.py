"""Compiling for OpenVINO in int8: convert, find what each layer reads, quantise the layers that bear it, write.

Weights get a scale per output; what a layer reads gets one scale, found beforehand on calibration texts: fast, the same
whatever is in the batch, and rough where a few values are far larger than the rest. So layers are tried one by one, and
quantised from the cheapest on while what they cost is no more than is allowed; the others stay as they are, and run in
bf16 where the CPU has it. A layer's name decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compile.cpu import QuestionAnswering, runner_of, tensors, trace
from compile.exam import Exam
from compile.int8 import HEAD_NAME, INT8_MAX, SMALLEST
from compile.model import LoadedModel
from compile.probes import Run
from compile.samples import sample_queries
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.openvino import forward_of, options_for, require_openvino, weights_of
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import Bucket
from corelane.engine.text.tokenize import Query, Reader, Reading
from corelane.errors import CompileFailed

COMPILER = "openvino.convert_model"

#: The one file of an artifact; its weights lie beside it.
GRAPH_FILE = "model.xml"

#: Windows that scales and costs are measured on, spread over the questions. Twice as many choose the same layers.
WINDOWS = 48

#: Nats of divergence (see ``divergence``) that quantising may cost in all.
MOST_COST = 0.004

#: How much of the work of quantising is taken from what a layer reads and given to its weights, 0 to 1 (SmoothQuant): a
#: channel that is far larger than the others is divided, its weights multiplied.
SHARE = 0.8

#: Levels of the unsigned int8 that a static layer's inputs become.
LEVELS = 256


@dataclass(frozen=True, slots=True)
class Calibration:
    """Batches of one unpadded row, and the eager network's logits of each."""

    batches: Sequence[Batch]
    expected: Sequence[Logits]


@dataclass(frozen=True, slots=True)
class Graph:
    """A quantised model, and how many of its linear layers are in int8."""

    model: Any
    quantised: int
    layers: int

    def run(self) -> Run:
        """Compiled for this CPU."""
        return forward_of(require_openvino().Core(), self.model)

    @property
    def arguments(self) -> list[str]:
        """As the manifest says it."""
        return [f"int8={self.quantised} of {self.layers} linear layers"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Linear layers that read the same values, and by channel the smallest and largest of those over the texts."""

    names: frozenset[str]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    weights: int
    smoothing: NDArray[np.float32]


def make_graph(model: LoadedModel, reference: QuestionAnswering, longest: int, exam: Exam | None) -> Graph:
    """Quantise a model by the exam's questions, or else by the samples; raises CompileFailed, or SetupError."""
    core = require_openvino().Core()
    calibration = calibrate(model, reference, sample_queries() if exam is None else exam.queries, longest)
    plain = convert(reference, calibration.batches[0])
    inputs = find_inputs(plain, calibration.batches)
    before = cost(forward_of(core, plain), calibration)
    costs = [cost(forward_of(core, quantise(plain, [one])), calibration) - before for one in inputs]
    chosen = choose(inputs, costs, MOST_COST)
    counts = [sum(len(one.names) for one in some) for some in (chosen, inputs)]
    return Graph(quantise(plain, chosen), *counts)


def calibrate(model: LoadedModel, reference: QuestionAnswering, queries: Sequence[Query], longest: int) -> Calibration:
    """Windows of the questions, each a batch of its own; raises CompileFailed if no question fits."""
    reader = Reader(model.tokenizer, model.spec, longest)
    some = queries[:: max(1, len(queries) // WINDOWS)]
    read = [(one, window) for one in reader.read(some) if isinstance(one, Reading) for window in one.windows]
    if not read:
        raise CompileFailed(f"no question to calibrate by fits into {longest} tokens")
    rows = read[:: max(1, len(read) // WINDOWS)][:WINDOWS]
    batches = [reader.fill(Bucket(length=row[1].length, rows=1), [row], 1) for row in rows]
    return Calibration(batches, [runner_of(reference)(batch) for batch in batches])


def choose(inputs: Sequence[Inputs], costs: Sequence[float], most: float) -> list[Inputs]:
    """Those to quantise: by cost a weight, from the cheapest on, as long as their costs add up to ``most`` at most.

    Alone and together layers cost about the same: of 24, the sum was within a third of what was then measured.
    """
    chosen, spent = [], 0.0
    for value, one in sorted(zip(costs, inputs, strict=True), key=lambda pair: pair[0] / pair[1].weights):
        spent += max(value, 0.0)
        if not spent <= most:
            break
        chosen.append(one)
    return chosen


def convert(reference: QuestionAnswering, example: Batch) -> Any:
    """The eager network as a graph of OpenVINO, in fp32, of any shape; raises CompileFailed."""
    ov = require_openvino()
    traced = trace(reference, example)
    try:
        with torchscript_warnings_silenced():
            return ov.convert_model(traced, example_input=tensors(example))
    except (RuntimeError, ValueError, TypeError) as error:
        raise CompileFailed(f"OpenVINO cannot convert the model: {str(error).strip().splitlines()[-1]}") from error


def write(model: Any, path: Path) -> int:
    """Write a graph, and its weights beside it; the bytes of both."""
    require_openvino().save_model(model, path, compress_to_fp16=False)
    return path.stat().st_size + (path.parent / weights_of(path.name)).stat().st_size


def linears(model: Any) -> Iterator[Any]:
    """The linear layers but for the head, whose two outputs save nothing."""
    for operation in model.get_ops():
        if operation.get_type_name() == "MatMul" and HEAD_NAME not in operation.get_friendly_name():
            weight = operation.input_value(1).get_node()
            if weight.get_type_name() == "Constant" and len(weight.shape) == 2 and _outputs_first(operation):
                yield operation


def find_inputs(model: Any, batches: Sequence[Batch]) -> list[Inputs]:
    """What the linear layers read, from one fp32 pass over the batches."""
    watched = model.clone()
    readers: dict[str, list[Any]] = {}
    for layer in linears(watched):
        readers.setdefault(_source(layer), []).append(layer)
    first = len(watched.outputs)
    watched.add_outputs([layers[0].input_value(0) for layers in readers.values()])
    core = require_openvino().Core()
    request = core.compile_model(watched, "CPU", options_for([])).create_infer_request()
    lows: list[list[NDArray[np.float32]]] = [[] for _ in readers]
    highs: list[list[NDArray[np.float32]]] = [[] for _ in readers]
    for batch in batches:
        request.infer([batch.input_ids, batch.attention_mask, batch.token_type_ids])
        for at in range(len(readers)):
            values = request.get_output_tensor(first + at).data
            values = values.reshape(-1, values.shape[-1])
            lows[at].append(values.min(axis=0))
            highs[at].append(values.max(axis=0))
    return [
        _summarise(layers, np.min(low, axis=0), np.max(high, axis=0))
        for layers, low, high in zip(readers.values(), lows, highs, strict=True)
    ]


def _summarise(layers: Sequence[Any], low: NDArray[np.float32], high: NDArray[np.float32]) -> Inputs:
    """How far each channel of the inputs is divided, and the weights of its readers multiplied."""
    weights = np.concatenate([_weight(layer) for layer in layers])
    reads, weighs = (np.maximum(one, SMALLEST) for one in (np.maximum(-low, high), np.abs(weights).max(axis=0)))
    smoothing = (reads**SHARE / weighs ** (1 - SHARE)).astype(np.float32)
    names = frozenset(layer.get_friendly_name() for layer in layers)
    return Inputs(names, low, high, weights.size, smoothing)


def quantise(model: Any, inputs: Sequence[Inputs]) -> Any:
    """A copy in which the layers that read these are in int8."""
    from openvino import opset13 as operations

    quantised = model.clone()
    readers = {name: one for one in inputs for name in one.names}
    rounded: dict[frozenset[str], Any] = {}
    for layer in list(linears(quantised)):
        read = readers.get(layer.get_friendly_name())
        if read is None:
            continue
        weight = _weight(layer) * read.smoothing
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True), SMALLEST) / INT8_MAX
        whole = operations.constant(np.round(weight / scale).astype(np.int8))
        scaled = operations.multiply(operations.convert(whole, "f32"), operations.constant(scale))
        if read.names not in rounded:
            low, high = representable((read.low / read.smoothing).min(), (read.high / read.smoothing).max())
            bounds = [operations.constant(np.float32(value)) for value in (low, high, low, high)]
            smoothed = operations.multiply(layer.input_value(0), operations.constant(1 / read.smoothing))
            rounded[read.names] = operations.fake_quantize(smoothed, *bounds, levels=LEVELS)
        layer.input(0).replace_source_output(rounded[read.names].output(0))
        layer.input(1).replace_source_output(scaled.output(0))
    return quantised


def representable(low: float, high: float) -> tuple[float, float]:
    """The span, widened so that 0 lies in it and is one of its levels."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = max((high - low) / (LEVELS - 1), SMALLEST)
    below = round(-low / step)
    return -below * step, (LEVELS - 1 - below) * step


def divergence(expected: Logits, got: Logits) -> float:
    """How far a pass' distributions over starts and ends are from the eager network's: KL divergence, in nats a row."""
    total = 0.0
    for one, other in ((expected.start, got.start), (expected.end, got.end)):
        true, found = _log_softmax(one), _log_softmax(other)
        total += float((np.exp(true) * (true - found)).sum())
    return total / len(expected.start)


def cost(run: Run, calibration: Calibration) -> float:
    """The mean divergence over the calibration texts."""
    pairs = zip(calibration.batches, calibration.expected, strict=True)
    return float(np.mean([divergence(expected, run(batch)) for batch, expected in pairs]))


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _weight(layer: Any) -> NDArray[np.float32]:
    return np.asarray(layer.input_value(1).get_node().get_data(), dtype=np.float32)


def _outputs_first(layer: Any) -> bool:
    attributes: Mapping[str, bool] = layer.get_attributes()
    return attributes["transpose_b"] and not attributes["transpose_a"]


def _source(layer: Any) -> str:
    value = layer.input_value(0)
    return f"{value.get_node().get_friendly_name()}:{value.get_index()}"
