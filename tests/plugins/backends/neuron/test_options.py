from typing import Any

import pytest

from compile.plugin import TargetOptions
from corelane.errors import CompileFailed
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.compiling.options import NeuronRecipe, make_recipes


def recipes(target: str, dtype: str = "auto", **options: Any) -> tuple[NeuronRecipe, ...]:
    return make_recipes(CHIPS[target], dtype, TargetOptions(**options))


def arguments(target: str, dtype: str = "auto", **options: Any) -> str:
    return " ".join(recipes(target, dtype, **options)[0].compiler_args)


def test_every_argument_that_decides_an_answer_is_written_out() -> None:
    assert arguments("inf2", "fp32") == "--target inf2 --model-type transformer --optlevel 2 --auto-cast none"
    assert arguments("trn1") == (
        "--target trn1 --model-type transformer --optlevel 2 --auto-cast matmult --auto-cast-type bf16"
    )
    for target in ("trn2", "trn3"):
        assert arguments(target).endswith("--auto-cast none --logical-nc-config 2")
        assert arguments(target, compiler_args="-lnc 1").endswith("--auto-cast none -lnc 1")
    assert arguments("inf1", "fp32") == "--fast-math none --neuroncore-pipeline-cores 1"


@pytest.mark.parametrize(
    ("target", "formats"),
    [
        ("inf2", [("fp32", "bf16"), ("fp32", "fp32")]),
        ("trn1", [("fp32", "bf16"), ("fp32", "fp32")]),
        ("trn2", [("bf16", "bf16"), ("fp32", "fp32")]),
        ("trn3", [("bf16", "bf16"), ("fp32", "fp32")]),
        ("inf1", [("fp32", "bf16"), ("fp32", "fp32")]),
    ],
)
def test_auto_is_bf16_products_then_fp32(target: str, formats: list[tuple[str, str]]) -> None:
    assert [(recipe.weights, recipe.dtype) for recipe in recipes(target)] == formats


@pytest.mark.parametrize(
    ("given", "expected", "dtype"),
    [
        ("--auto-cast all --auto-cast-type bf16", "--auto-cast all --auto-cast-type bf16", "bf16"),
        ("--auto-cast matmult --auto-cast-type=tf32", "--auto-cast matmult --auto-cast-type=tf32", "tf32"),
        ("--auto-cast-type fp16", "--auto-cast matmult --auto-cast-type fp16", "fp16"),
        ("--auto-cast none", "--optlevel 2 --auto-cast none", "fp32"),
        ("-O1", "--model-type transformer --auto-cast matmult --auto-cast-type bf16 -O1", "bf16"),
        ("--model-type generic", "--optlevel 2 --auto-cast matmult --auto-cast-type bf16 --model-type generic", "bf16"),
        ("--verbose info", "--verbose info", "bf16"),
    ],
)
def test_arguments_of_neuronx_cc_go_before_the_defaults(given: str, expected: str, dtype: str) -> None:
    assert expected in arguments("inf2", compiler_args=given)
    assert recipes("inf2", compiler_args=given)[0].dtype == dtype


def test_network_that_is_cast_itself_is_not_cast_by_the_compiler() -> None:
    (recipe,) = recipes("inf2", "bf16")
    assert recipe.weights == recipe.dtype == "bf16"
    assert "--auto-cast none" in " ".join(recipe.compiler_args)


@pytest.mark.parametrize(
    ("dtype", "options", "fast_math", "computed"),
    [
        ("auto", {}, "all", "bf16"),
        ("bf16", {}, "fp32-cast-all", "bf16"),
        ("fp16", {}, "fp32-cast-all-fp16", "fp16"),
        ("fp32", {}, "none", "fp32"),
        ("auto", {"compiler_args": "--fast-math fp32-cast-all-fp16 no-fast-relayout"}, "fp32-cast-all-fp16", "fp16"),
    ],
)
def test_inf1_casts_by_fast_math(dtype: str, options: dict[str, Any], fast_math: str, computed: str) -> None:
    recipe = recipes("inf1", dtype, **options)[0]
    assert f"--fast-math {fast_math}" in " ".join(recipe.compiler_args)
    assert (recipe.weights, recipe.dtype) == ("fp32", computed)


def test_pipeline_of_inf1_is_told_to_the_compiler() -> None:
    (recipe, _) = recipes("inf1", pipeline_cores=4)
    assert (recipe.cores, recipe.compiler_args[-2:]) == (4, ("--neuroncore-pipeline-cores", "4"))


@pytest.mark.parametrize(
    ("target", "dtype", "options", "sentence"),
    [
        ("inf2", "auto", {"pipeline_cores": 4}, r"--pipeline-cores is for inf1: neuronx-cc .* a worker of its own"),
        ("inf2", "int8", {}, "not in int8"),
        ("inf2", "auto", {"compiler_args": "--target=trn1"}, "has an option of its own: use --target"),
        ("inf1", "auto", {"compiler_args": "--neuroncore-pipeline-cores 2"}, "use --pipeline-cores"),
        ("inf2", "auto", {"compiler_args": "--fast-math none"}, "is neuron-cc's"),
        ("inf2", "auto", {"compiler_args": "info"}, "must begin with an argument"),
        ("inf2", "auto", {"compiler_args": "--verbose 'info"}, "cannot be read"),
    ],
)
def test_impossible_options_are_refused(target: str, dtype: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CompileFailed, match=sentence):
        recipes(target, dtype, **options)
