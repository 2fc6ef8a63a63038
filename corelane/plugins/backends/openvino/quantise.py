"""Quantise a network for OpenVINO: find the range of each layer's inputs, and convert the layers that tolerate it to
int8.

Weights get a scale per output. The inputs of a layer get one scale, found beforehand on calibration texts. One scale is
fast and the same for every batch, but imprecise if a few values are far larger than the rest. So the layers are tried
one by one, and quantised from the lowest cost on until the allowed cost is used up. The others run in bf16 if the CPU
has it, or else in fp32.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compile.model.loading import SourceModel
from compile.model.probes import read_rows
from compile.model.reference import TaskNetwork, tensors
from compile.torch.cpu import trace
from compile.torch.head import HEADS
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import Query
from corelane.errors import CompileFailed, last_line
from corelane.plugins.backends.openvino.graph import options_for, require_openvino, the_core

#: Windows on which scales and costs are measured, spread over the items. With twice as many the same layers are
#: chosen.
WINDOWS = 48

#: Most nats of ``divergence`` that all quantised layers together may cost.
MOST_COST = 0.004

#: How much of the difficulty of quantising moves from a layer's inputs to its weights, 0 to 1 (SmoothQuant). A channel
#: that is far larger than the others is divided, and its weights are multiplied.
SHARE = 0.8

#: Largest magnitude of a weight: 7 bits. Without VNNI a CPU adds two products of a weight and an input (0 to 255) in 16
#: bits, and weights of 8 bits overflow there: scores of tiny models were off by 0.06 to 0.16, by 0.02 with 7 bits.
WEIGHT_MAX = 63

#: Levels of the unsigned int8 of a layer's inputs, and the least scale, that of zeros.
LEVELS, SMALLEST = 256, 1e-8


@dataclass(frozen=True, slots=True)
class CalibrationBatches:
    """Batches of one unpadded row, and the eager network's logits of each."""

    batches: Sequence[WindowBatch]
    expected: Sequence[Logits]
    divergence: Callable[[Logits, Logits], float]


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Linear layers that read the same values, and each channel's smallest and largest value over the texts."""

    names: frozenset[str]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    weights: int
    smoothing: NDArray[np.float32]


def calibrate(model: SourceModel, run_eager: Pass, queries: Sequence[Query], longest: int) -> CalibrationBatches:
    """Return windows of the items, each window as one batch; raises CompileFailed if none fits."""
    engine = model.task.engine(model.tokenizer, model.spec, longest)
    rows = read_rows(engine, queries[:: max(1, len(queries) // WINDOWS)])
    if not rows:
        raise CompileFailed(f"no item to calibrate by fits into {longest} tokens")
    rows = rows[:: max(1, len(rows) // WINDOWS)][:WINDOWS]
    batches = [engine.fill(Bucket(length=window.length, rows=1), [(read, window)], 1) for _, read, window in rows]
    return CalibrationBatches(batches, [run_eager(batch) for batch in batches], model.task.divergence)


def choose(inputs: Sequence[LayerInputs], costs: Sequence[float], most: float) -> list[LayerInputs]:
    """Return the layers to quantise, from the lowest cost per weight on, while their costs sum to at most ``most``.

    The costs of layers roughly add up: for 24 layers, the sum was within a third of the measured total.
    """
    chosen, spent = [], 0.0
    for value, one in sorted(zip(costs, inputs, strict=True), key=lambda pair: pair[0] / pair[1].weights):
        spent += max(value, 0.0)
        if not spent <= most:
            break
        chosen.append(one)
    return chosen


def convert(reference: TaskNetwork, example: WindowBatch) -> Any:
    """Return the eager network as an OpenVINO graph in fp32 for any shape; raises CompileFailed."""
    ov = require_openvino()
    traced = trace(reference, example)
    try:
        with torchscript_warnings_silenced():
            return ov.convert_model(traced, example_input=tensors(example))
    except Exception as error:
        # Its own errors have nothing in common.
        raise CompileFailed(f"OpenVINO cannot convert the model: {last_line(error)}") from error


def linears(model: Any) -> Iterator[Any]:
    """Yield the linear layers, except the head, whose two outputs save no time."""
    for operation in model.get_ops():
        if operation.get_type_name() == "MatMul" and not any(name in operation.get_friendly_name() for name in HEADS):
            weight = operation.input_value(1).get_node()
            if weight.get_type_name() == "Constant" and len(weight.shape) == 2 and _outputs_first(operation):
                yield operation


def find_inputs(model: Any, batches: Sequence[WindowBatch]) -> list[LayerInputs]:
    """Return the inputs of the linear layers, from one fp32 pass over the batches."""
    watched = model.clone()
    readers: dict[str, list[Any]] = {}
    for layer in linears(watched):
        readers.setdefault(_source(layer), []).append(layer)
    first = len(watched.outputs)
    watched.add_outputs([layers[0].input_value(0) for layers in readers.values()])
    core = the_core()
    request = core.compile_model(watched, "CPU", options_for("fp32", [])).create_infer_request()
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


def _summarise(layers: Sequence[Any], low: NDArray[np.float32], high: NDArray[np.float32]) -> LayerInputs:
    """Return the inputs of some layers, with the factor that divides each channel and multiplies its weights."""
    weights = np.concatenate([_weight(layer) for layer in layers])
    reads, weighs = (np.maximum(one, SMALLEST) for one in (np.maximum(-low, high), np.abs(weights).max(axis=0)))
    smoothing = (reads**SHARE / weighs ** (1 - SHARE)).astype(np.float32)
    names = frozenset(layer.get_friendly_name() for layer in layers)
    return LayerInputs(names, low, high, weights.size, smoothing)


def quantise(model: Any, inputs: Sequence[LayerInputs]) -> Any:
    """Return a copy of the model in which the layers with these inputs are in int8."""
    from openvino import opset13 as operations

    quantised = model.clone()
    readers = {name: one for one in inputs for name in one.names}
    rounded: dict[frozenset[str], Any] = {}
    for layer in list(linears(quantised)):
        read = readers.get(layer.get_friendly_name())
        if read is None:
            continue
        weight = _weight(layer) * read.smoothing
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True), SMALLEST) / WEIGHT_MAX
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
    """Widen a range so that it contains 0 as one of its levels."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = max((high - low) / (LEVELS - 1), SMALLEST)
    below = round(-low / step)
    return -below * step, (LEVELS - 1 - below) * step


def cost(run: Pass, calibration: CalibrationBatches) -> float:
    """Return the mean divergence over the calibration texts."""
    pairs = zip(calibration.batches, calibration.expected, strict=True)
    return float(np.mean([calibration.divergence(expected, run(batch)) for batch, expected in pairs]))


def _weight(layer: Any) -> NDArray[np.float32]:
    return np.asarray(layer.input_value(1).get_node().get_data(), dtype=np.float32)


def _outputs_first(layer: Any) -> bool:
    attributes: Mapping[str, bool] = layer.get_attributes()
    return attributes["transpose_b"] and not attributes["transpose_a"]


def _source(layer: Any) -> str:
    value = layer.input_value(0)
    return f"{value.get_node().get_friendly_name()}:{value.get_index()}"
