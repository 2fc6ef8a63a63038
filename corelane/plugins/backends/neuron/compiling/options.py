"""Turn the options of a Neuron target into the compiler's arguments, or refuse them with the reason. Pure.

All arguments that can change a result are written out, even defaults: the default of ``--auto-cast`` has changed. A
default gives way to the same argument in ``--compiler-args``.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compile.plugin import TargetOptions
from corelane.artifacts.manifest import NumberFormat
from corelane.errors import CompileFailed
from corelane.plugins.backends.neuron.chips import NeuronChip

Weights = Literal["fp32", "bf16", "fp16"]

#: Arguments for neuronx-cc that ``--compiler-args`` can replace: its own default level, and the model type that
#: Hugging Face's optimum passes for encoders.
DEFAULTS = {"--model-type": "transformer", "--optlevel": "2"}

#: Short names of compiler arguments.
ALIASES = {
    "-O": "--optlevel",
    "-O1": "--optlevel",
    "-O2": "--optlevel",
    "-O3": "--optlevel",
    "-lnc": "--logical-nc-config",
}

#: Compiler arguments that `corelane compile` has options for.
TAKEN = {"--target": "--target", "--neuroncore-pipeline-cores": "--pipeline-cores"}

#: The values of neuron-cc's ``--fast-math`` for each ``--dtype``, best first; ``all``, its default, casts to bf16.
FAST_MATH: Mapping[str, Sequence[str]] = {
    "auto": ("all", "none"),
    "fp32": ("none",),
    "bf16": ("fp32-cast-all",),
    "fp16": ("fp32-cast-all-fp16",),
}

#: The number formats that the compilers cast products to.
CAST_TYPES: Mapping[str, NumberFormat] = {"bf16": "bf16", "fp16": "fp16", "tf32": "tf32", "fp8_e4m3": "fp8_e4m3"}


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


def make_recipes(chip: NeuronChip, dtype: str, options: TargetOptions) -> tuple[NeuronRecipe, ...]:
    """Return the recipes to try, best first; raises CompileFailed."""
    if dtype not in FAST_MATH:
        raise CompileFailed(f"{chip.target} computes in fp32, bf16 or fp16, not in {dtype}; choose one, or auto")
    extra = _read_extra(options.compiler_args)
    if chip.package == "torch_neuron":
        return _make_inf1(chip, dtype, options.pipeline_cores or 1, extra)
    if options.pipeline_cores is not None:
        raise CompileFailed(
            f"--pipeline-cores is for inf1: {chip.compiler} lays no model over several cores of {chip.target}. Leave "
            "it out: each core then holds a whole model and has a worker of its own"
        )
    return _make_neuronx(chip, dtype, extra)


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


def _make_neuronx(chip: NeuronChip, dtype: str, extra: tuple[str, ...]) -> tuple[NeuronRecipe, ...]:
    """Return the recipes for neuronx-cc.

    ``auto`` computes products in bf16, as the published BERT figures do. On trn2 the network itself is cast, because
    products in bf16 alone are up to a quarter slower there; trn3 is taken for its like. fp32 comes next, for models
    whose results change in bf16.
    """
    names = names_in(extra)
    if "--fast-math" in names:
        raise CompileFailed("--fast-math is neuron-cc's, for inf1; use --auto-cast and --auto-cast-type")
    common = ["--target", chip.target]
    for name, value in DEFAULTS.items():
        common += [] if name in names else [name, value]
    if chip.logical > 1 and "--logical-nc-config" not in names:
        extra = ("--logical-nc-config", "2", *extra)
    if names & {"--auto-cast", "--auto-cast-type"}:
        weights = _weights("fp32" if dtype == "auto" else dtype)
        if (cast := _value_of(extra, "--auto-cast")) is None:
            cast, extra = "matmult", ("--auto-cast", "matmult", *extra)
        kind = CAST_TYPES.get(_value_of(extra, "--auto-cast-type") or "bf16", "bf16")
        computed: NumberFormat = weights if cast == "none" or weights != "fp32" else kind
        return (NeuronRecipe(chip, computed, weights, (*common, *extra)),)
    none, matmult = ("--auto-cast", "none"), ("--auto-cast", "matmult", "--auto-cast-type", "bf16")
    exact = NeuronRecipe(chip, "fp32", "fp32", (*common, *none, *extra))
    if dtype != "auto":
        weights = _weights(dtype)
        return (NeuronRecipe(chip, weights, weights, (*common, *none, *extra)),)
    if chip.logical > 1:
        return NeuronRecipe(chip, "bf16", "bf16", (*common, *none, *extra)), exact
    return NeuronRecipe(chip, "bf16", "fp32", (*common, *matmult, *extra)), exact


def _weights(dtype: str) -> Weights:
    known: dict[str, Weights] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return known[dtype]


def _value_of(arguments: Sequence[str], name: str) -> str | None:
    """Return the value of an argument, given as `NAME VALUE` or `NAME=VALUE`."""
    for number, argument in enumerate(arguments):
        if argument == name:
            return next(iter(arguments[number + 1 :]), None)
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def _make_inf1(chip: NeuronChip, dtype: str, cores: int, extra: tuple[str, ...]) -> tuple[NeuronRecipe, ...]:
    pipeline = ("--neuroncore-pipeline-cores", str(cores))
    if "--fast-math" in names_in(extra):
        return (NeuronRecipe(chip, _inf1_dtype(" ".join(extra)), "fp32", (*pipeline, *extra), cores),)
    return tuple(
        NeuronRecipe(chip, _inf1_dtype(fast_math), "fp32", ("--fast-math", fast_math, *pipeline, *extra), cores)
        for fast_math in FAST_MATH[dtype]
    )


def _inf1_dtype(fast_math: str) -> NumberFormat:
    if "fp16" in fast_math.replace("bf16", ""):
        return "fp16"
    return "fp32" if "none" in fast_math.split() else "bf16"
