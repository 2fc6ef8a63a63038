"""Compile for OpenVINO in int8: convert, quantise the layers that tolerate it, and write the graph."""

from functools import partial
from pathlib import Path
from typing import Any

from compile.model.reference import runner_of
from compile.plan import BuildPlan
from compile.plugin import FormatGraph
from compile.tasks.evaluation import EvalSet
from corelane.engine.backends.protocol import Pass
from corelane.errors import CompileFailed
from corelane.plugins.backends.openvino.graph import forward_of, require_openvino, weights_of
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
    """Makes a graph in int8. Other dtypes are as fast in TorchScript."""

    way = "openvino int8"
    #: The least speed-up that is worth this format; high, because serving needs one more library.
    least_gain = 1.3

    def check(self, dtype: str) -> None:
        """Raise CompileFailed unless the dtype is int8, SetupError if OpenVINO is not installed."""
        if dtype not in ("auto", "int8"):
            raise CompileFailed(f"format openvino is int8: in {dtype} TorchScript is as fast; use --dtype int8")
        require_openvino()

    def make_graph(self, plan: BuildPlan, eval_set: EvalSet | None) -> FormatGraph:
        """Quantise a model, by the items of an eval set or the samples; raises CompileFailed or SetupError."""
        core = require_openvino().Core()
        queries = plan.model.task.samples() if eval_set is None else eval_set.queries
        calibration = calibrate(plan.model, runner_of(plan.reference), queries, plan.ladder[-1].length)
        plain = convert(plan.reference, calibration.batches[0])
        inputs = find_inputs(plain, calibration.batches)
        before = cost(forward_of(core, plain), calibration)
        costs = [cost(forward_of(core, quantise(plain, [one])), calibration) - before for one in inputs]
        chosen = choose(inputs, costs, MOST_COST)
        quantised, layers = (sum(len(one.names) for one in some) for some in (chosen, inputs))
        graph = quantise(plain, chosen)
        return FormatGraph(
            format="openvino",
            run=partial(compile_graph, graph),
            write=partial(write, graph),
            file=GRAPH_FILE,
            compiler="openvino.convert_model",
            arguments=[f"int8={quantised} of {layers} linear layers"],
            extra_files=(weights_of(GRAPH_FILE),),
            tools={"openvino": require_openvino().__version__},
        )


def compile_graph(model: Any) -> Pass:
    """Compile a graph for this CPU."""
    return forward_of(require_openvino().Core(), model)


def write(model: Any, path: Path) -> int:
    """Write a graph, and its weights beside it; return the bytes of both."""
    require_openvino().save_model(model, path, compress_to_fp16=False)
    return path.stat().st_size + (path.parent / weights_of(path.name)).stat().st_size
