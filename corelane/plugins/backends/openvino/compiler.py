"""Compile for OpenVINO: convert, for int8 quantise the layers that tolerate it, and write the graph."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from compile.model.probes import fill_probe
from compile.model.reference import runner_of
from compile.plan import BuildPlan
from compile.plugin import FormatGraph
from compile.tasks.evaluation import EvalSet
from compile.torch.cpu import cast
from compile.torch.reshaping import rows_of
from compile.trial import Dtype
from corelane.plugins.backends.openvino.graph import forward_of, require_openvino, the_core, weights_of
from corelane.plugins.backends.openvino.quantise import (
    MOST_COST,
    calibrate,
    choose,
    convert,
    cost,
    find_inputs,
    quantise,
)

#: The graph of an artifact. Its weights lie in a file beside it.
GRAPH_FILE = "model.xml"


class OpenVinoCompiler:
    """Makes graphs that OpenVINO runs in fp32, bf16 or int8."""

    #: Serving needs one more library. Logits in int8 are some four times as far from those in fp32 as bf16's are.
    least_gains: Mapping[Dtype, float] = {"fp32": 1.1, "bf16": 1.1, "int8": 1.3}

    def make_graph(self, plan: BuildPlan, dtype: Dtype, eval_set: EvalSet | None) -> FormatGraph:
        """Convert a model; raises CompileFailed or SetupError."""
        if dtype == "int8":
            return self._quantised(plan, eval_set)
        model, network = plan.model, cast(plan.reference, "fp32")
        [example, *_] = fill_probe(model.task, model.tokenizer, model.spec, plan.ladder[0])[1]
        return graph_of(convert(network, example), dtype, [rows_of(network.network)])

    def _quantised(self, plan: BuildPlan, eval_set: EvalSet | None) -> FormatGraph:
        """Quantise a model, by the items of an eval set or the samples."""
        core = the_core()
        queries = plan.model.task.samples() if eval_set is None else eval_set.queries
        calibration = calibrate(plan.model, runner_of(plan.reference), queries, plan.ladder[-1].length)
        plain = convert(plan.reference, calibration.batches[0])
        inputs = find_inputs(plain, calibration.batches)
        before = cost(forward_of(core, plain, "int8"), calibration)
        costs = [cost(forward_of(core, quantise(plain, [one]), "int8"), calibration) - before for one in inputs]
        chosen = choose(inputs, costs, MOST_COST)
        quantised, layers = (sum(len(one.names) for one in some) for some in (chosen, inputs))
        return graph_of(quantise(plain, chosen), "int8", [f"int8={quantised} of {layers} linear layers"])


def graph_of(graph: Any, dtype: Dtype, arguments: list[str]) -> FormatGraph:
    """Return a graph of OpenVINO as the compiler takes it."""
    return FormatGraph(
        format="openvino",
        run=lambda: forward_of(the_core(), graph, dtype),
        write=partial(write, graph),
        file=GRAPH_FILE,
        compiler="openvino.convert_model",
        arguments=arguments,
        extra_files=(weights_of(GRAPH_FILE),),
        tools={"openvino": require_openvino().__version__},
    )


def write(model: Any, path: Path) -> int:
    """Write a graph, and its weights beside it; return the bytes of both."""
    require_openvino().save_model(model, path, compress_to_fp16=False)
    return path.stat().st_size + (path.parent / weights_of(path.name)).stat().st_size
