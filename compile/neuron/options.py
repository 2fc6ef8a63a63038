"""Turn the options of a Neuron target into the compiler's arguments, or refuse them with the reason. Pure.

All arguments that can change a result are written out, even defaults: the default of ``--auto-cast`` has changed.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from corelane.artifacts.manifest import NumberFormat
from corelane.engine.backends.neuron.chips import NeuronChip
from corelane.errors import CompileFailed

AutoCast = Literal["none", "matmult", "all"]
AutoCastType = Literal["bf16", "fp16", "tf32", "fp8_e4m3"]
ModelType = Literal["generic", "transformer"]
Weights = Literal["fp32", "bf16", "fp16"]

#: AWS' rule for the number of cores of a pipeline: 4 · round(weights / 2e7).
PIPELINE_CORES, PIPELINE_WEIGHTS = 4, 2e7

#: neuronx-cc's own default, and optimum's value for encoders.
DEFAULT_OPTLEVEL, DEFAULT_MODEL_TYPE = 2, "transformer"

#: Short names of compiler arguments.
ALIASES = {
    "-O": "--optlevel",
    "-O1": "--optlevel",
    "-O2": "--optlevel",
    "-O3": "--optlevel",
    "-lnc": "--logical-nc-config",
}

#: Compiler arguments that `corelane compile` has options for, or sets itself.
TAKEN = {
    "--target": "--target",
    "--auto-cast": "--auto-cast",
    "--auto-cast-type": "--auto-cast-type",
    "--optlevel": "--optlevel",
    "--model-type": "--model-type",
    "--neuroncore-pipeline-cores": "--pipeline-cores",
}

#: The values of neuron-cc's ``--fast-math`` for each cast; it casts to bf16 by default.
FAST_MATH = {
    ("none", "bf16"): "none",
    ("matmult", "bf16"): "fp32-cast-matmult-bf16",
    ("matmult", "fp16"): "fp32-cast-matmult-fp16",
    ("all", "bf16"): "fp32-cast-all",
    ("all", "fp16"): "fp32-cast-all-fp16",
}


@dataclass(frozen=True, slots=True)
class NeuronOptions:
    """The options of `corelane compile` for a Neuron target; None means that Corelane chooses.

    ``pipeline_cores`` is a number or ``auto``; ``cores`` is the number of cores of the serving machine, the most that
    ``auto`` uses; ``python`` is the interpreter that has the Neuron packages.
    """

    auto_cast: AutoCast | None = None
    auto_cast_type: AutoCastType | None = None
    optlevel: int | None = None
    model_type: ModelType | None = None
    compiler_args: str = ""
    pipeline_cores: str | None = None
    cores: int | None = None
    cpu_backend: bool = False
    report: bool = False
    jobs: int | None = None
    cache: bool = True
    python: str = sys.executable

    @property
    def named(self) -> list[str]:
        """The given options that are for Neuron targets only, as a user types them."""
        given = {
            "--auto-cast": self.auto_cast,
            "--auto-cast-type": self.auto_cast_type,
            "--optlevel": self.optlevel,
            "--model-type": self.model_type,
            "--compiler-args": self.compiler_args,
            "--pipeline-cores": self.pipeline_cores,
            "--cores": self.cores,
            "--cpu-backend": self.cpu_backend,
            "--report": self.report,
        }
        return [name for name, value in given.items() if value]


@dataclass(frozen=True, slots=True)
class NeuronRecipe:
    """How to compile for a chip.

    The network is cast to ``weights`` before it is traced. It computes products in ``dtype``. One copy of the model
    takes ``cores`` cores.
    """

    chip: NeuronChip
    dtype: NumberFormat
    weights: Weights
    compiler_args: tuple[str, ...]
    cores: int = 1


def make_recipes(chip: NeuronChip, dtype: str, options: NeuronOptions, parameters: int) -> tuple[NeuronRecipe, ...]:
    """Return the recipes to try, best first; raises CompileFailed. ``parameters`` is the number of weights."""
    if dtype not in ("auto", "fp32", "bf16", "fp16"):
        raise CompileFailed(f"{chip.target} computes in fp32, bf16 or fp16, not in {dtype}; choose one, or auto")
    if options.auto_cast == "none" and options.auto_cast_type:
        raise CompileFailed("--auto-cast none casts nothing: leave out --auto-cast-type, or take --auto-cast matmult")
    extra = _read_extra(options.compiler_args)
    if chip.package == "torch_neuron":
        return _make_inf1(chip, dtype, options, extra, parameters)
    return _make_neuronx(chip, dtype, options, extra)


def names_in(arguments: Sequence[str]) -> set[str]:
    """Return the names of compiler arguments, without their values and in long form."""
    names = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}
    return {ALIASES.get(name, name) for name in names}


def _read_extra(text: str) -> tuple[str, ...]:
    try:
        extra = tuple(shlex.split(text))
    except ValueError as error:
        raise CompileFailed(f"--compiler-args {text!r} cannot be read: {error}") from None
    if extra and not extra[0].startswith("-"):
        raise CompileFailed(f"--compiler-args must begin with an argument, as `--verbose info`, not {extra[0]!r}")
    for name in sorted(names_in(extra) & set(TAKEN)):
        raise CompileFailed(f"{name} has an option of its own: use {TAKEN[name]}, not --compiler-args")
    return extra


def _make_neuronx(
    chip: NeuronChip, dtype: str, options: NeuronOptions, extra: tuple[str, ...]
) -> tuple[NeuronRecipe, ...]:
    if options.pipeline_cores is not None:
        raise CompileFailed(
            f"--pipeline-cores is for inf1: {chip.compiler} lays no model over several cores of {chip.target}. Leave "
            "it out: each core then holds a whole model and has a worker of its own"
        )
    if "--fast-math" in names_in(extra):
        raise CompileFailed("--fast-math is neuron-cc's, for inf1; use --auto-cast and --auto-cast-type")
    return tuple(
        _neuronx_recipe(chip, weights, cast, cast_type, options, extra)
        for weights, cast, cast_type in _neuronx_casts(chip, dtype, options)
    )


def _neuronx_casts(
    chip: NeuronChip, dtype: str, options: NeuronOptions
) -> list[tuple[Weights, AutoCast, AutoCastType | None]]:
    """Return the choices of weights, cast and cast type, best first.

    ``auto`` computes products in bf16, as the published BERT figures do. On trn2 the network itself is cast, because
    products in bf16 alone are up to a quarter slower there. fp32 comes next, for models whose results change in bf16.
    """
    cast, cast_type = options.auto_cast, options.auto_cast_type
    asked = cast or ("matmult" if cast_type else None)
    if asked is not None:
        weights: Weights = "fp32" if dtype == "auto" else _weights(dtype)
        return [(weights, asked, None if asked == "none" else cast_type or "bf16")]
    if dtype != "auto":
        return [(_weights(dtype), "none", None)]
    if chip.target == "trn2":
        return [("bf16", "none", None), ("fp32", "none", None)]
    return [("fp32", "matmult", "bf16"), ("fp32", "none", None)]


def _weights(dtype: str) -> Weights:
    known: dict[str, Weights] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return known[dtype]


def _neuronx_recipe(
    chip: NeuronChip,
    weights: Weights,
    cast: AutoCast,
    cast_type: AutoCastType | None,
    options: NeuronOptions,
    extra: tuple[str, ...],
) -> NeuronRecipe:
    arguments = ["--target", chip.target]
    arguments += ["--model-type", options.model_type or DEFAULT_MODEL_TYPE]
    arguments += ["--optlevel", str(options.optlevel or DEFAULT_OPTLEVEL)]
    arguments += ["--auto-cast", cast]
    if cast_type is not None:
        arguments += ["--auto-cast-type", cast_type]
    if chip.target == "trn2" and "--logical-nc-config" not in names_in(extra):
        arguments += ["--logical-nc-config", "2"]
    dtype: NumberFormat = cast_type if weights == "fp32" and cast_type is not None else weights
    return NeuronRecipe(chip, dtype, weights, (*arguments, *extra))


def _make_inf1(
    chip: NeuronChip, dtype: str, options: NeuronOptions, extra: tuple[str, ...], parameters: int
) -> tuple[NeuronRecipe, ...]:
    for name, value in {"--optlevel": options.optlevel, "--model-type": options.model_type}.items():
        if value is not None:
            raise CompileFailed(f"{name} is neuronx-cc's; neuron-cc, which compiles for inf1, has none: leave it out")
    cores = _pipeline_cores(chip, options, parameters)
    pipeline = ("--neuroncore-pipeline-cores", str(cores))
    if "--fast-math" in names_in(extra):
        return (NeuronRecipe(chip, _inf1_dtype(" ".join(extra)), "fp32", (*pipeline, *extra), cores),)
    return tuple(
        NeuronRecipe(chip, _inf1_dtype(fast_math), "fp32", ("--fast-math", fast_math, *pipeline, *extra), cores)
        for fast_math in _fast_maths(dtype, options)
    )


def _fast_maths(dtype: str, options: NeuronOptions) -> list[str]:
    """Return the values of ``--fast-math``, best first; ``all``, neuron-cc's default, casts to bf16."""
    cast, cast_type = options.auto_cast, options.auto_cast_type
    if dtype == "auto" and cast is None and cast_type is None:
        return ["all", "none"]
    wanted = cast or ("none" if dtype == "fp32" and cast_type is None else "all")
    kind = cast_type or ("fp16" if dtype == "fp16" and wanted != "none" else "bf16")
    if (wanted, kind) not in FAST_MATH:
        raise CompileFailed(f"inf1 casts to bf16 or fp16, not to {kind}: choose another --auto-cast-type")
    if dtype in ("bf16", "fp16") and (wanted == "none" or kind != dtype):
        raise CompileFailed(
            f"on inf1 the weights stay in fp32 and are cast by the compiler: --dtype {dtype} is --auto-cast all "
            f"--auto-cast-type {dtype}; give one or the other"
        )
    return [FAST_MATH[wanted, kind]]


def _inf1_dtype(fast_math: str) -> NumberFormat:
    if "fp16" in fast_math.replace("bf16", ""):
        return "fp16"
    return "fp32" if "none" in fast_math.split() else "bf16"


def _pipeline_cores(chip: NeuronChip, options: NeuronOptions, parameters: int) -> int:
    bound = options.cores or chip.logical_cores
    if options.pipeline_cores is None:
        return 1
    if options.pipeline_cores == "auto":
        return auto_pipeline_cores(parameters, bound)
    if not options.pipeline_cores.isdecimal() or int(options.pipeline_cores) < 1:
        raise CompileFailed(f"--pipeline-cores {options.pipeline_cores!r} is neither a number of cores nor `auto`")
    if options.cores is not None and int(options.pipeline_cores) > options.cores:
        raise CompileFailed(f"--pipeline-cores {options.pipeline_cores} is more than the {options.cores} of --cores")
    return int(options.pipeline_cores)


def auto_pipeline_cores(parameters: int, cores: int) -> int:
    """Return the number of cores of a pipeline by AWS' rule, from 1 to ``cores``."""
    return max(1, min(PIPELINE_CORES * round(parameters / PIPELINE_WEIGHTS), cores))
