from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.neuron.options import NeuronOptions, NeuronRecipe, auto_pipeline_cores, make_recipes
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import CompileFailed

BERT_BASE, BERT_LARGE, MINILM = 108_893_186, 334_094_338, 22_565_378


def recipes(target: str, dtype: str = "auto", parameters: int = BERT_BASE, **options: Any) -> tuple[NeuronRecipe, ...]:
    return make_recipes(CHIPS[target], dtype, NeuronOptions(**options), parameters)


def arguments(target: str, dtype: str = "auto", **options: Any) -> str:
    return " ".join(recipes(target, dtype, **options)[0].compiler_args)


def test_every_argument_that_decides_an_answer_is_written_out() -> None:
    assert arguments("inf2", "fp32") == "--target inf2 --model-type transformer --optlevel 2 --auto-cast none"
    assert arguments("trn1") == (
        "--target trn1 --model-type transformer --optlevel 2 --auto-cast matmult --auto-cast-type bf16"
    )
    assert arguments("trn2").endswith("--auto-cast none --logical-nc-config 2")
    assert arguments("inf1", "fp32") == "--fast-math none --neuroncore-pipeline-cores 1"


@pytest.mark.parametrize(
    ("target", "formats"),
    [
        ("inf2", [("fp32", "bf16"), ("fp32", "fp32")]),
        ("trn1", [("fp32", "bf16"), ("fp32", "fp32")]),
        ("trn2", [("bf16", "bf16"), ("fp32", "fp32")]),
        ("inf1", [("fp32", "bf16"), ("fp32", "fp32")]),
    ],
)
def test_auto_is_bf16_products_then_fp32(target: str, formats: list[tuple[str, str]]) -> None:
    assert [(recipe.weights, recipe.dtype) for recipe in recipes(target)] == formats


@pytest.mark.parametrize(
    ("options", "expected", "dtype"),
    [
        ({"auto_cast": "all"}, "--auto-cast all --auto-cast-type bf16", "bf16"),
        ({"auto_cast": "matmult", "auto_cast_type": "tf32"}, "--auto-cast matmult --auto-cast-type tf32", "tf32"),
        ({"auto_cast_type": "fp16"}, "--auto-cast matmult --auto-cast-type fp16", "fp16"),
        ({"auto_cast": "none"}, "--auto-cast none", "fp32"),
        ({"optlevel": 1}, "--optlevel 1", "bf16"),
        ({"model_type": "generic"}, "--model-type generic", "bf16"),
        ({"compiler_args": "--verbose info"}, "--verbose info", "bf16"),
    ],
)
def test_options_become_arguments_of_neuronx_cc(options: dict[str, Any], expected: str, dtype: str) -> None:
    assert expected in arguments("inf2", **options)
    assert recipes("inf2", **options)[0].dtype == dtype


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
        ("auto", {"auto_cast": "matmult"}, "fp32-cast-matmult-bf16", "bf16"),
        ("auto", {"auto_cast": "matmult", "auto_cast_type": "fp16"}, "fp32-cast-matmult-fp16", "fp16"),
        ("auto", {"auto_cast": "none"}, "none", "fp32"),
        ("auto", {"compiler_args": "--fast-math fp32-cast-all-fp16 no-fast-relayout"}, "fp32-cast-all-fp16", "fp16"),
    ],
)
def test_inf1_casts_by_fast_math(dtype: str, options: dict[str, Any], fast_math: str, computed: str) -> None:
    recipe = recipes("inf1", dtype, **options)[0]
    assert f"--fast-math {fast_math}" in " ".join(recipe.compiler_args)
    assert (recipe.weights, recipe.dtype) == ("fp32", computed)


def test_logical_cores_of_trn2_may_be_chosen() -> None:
    assert arguments("trn2", compiler_args="-lnc 1").endswith("--auto-cast none -lnc 1")


@pytest.mark.parametrize(
    ("parameters", "cores", "expected"),
    [(MINILM, 16, 4), (BERT_BASE, 64, 20), (BERT_BASE, 16, 16), (BERT_LARGE, 64, 64), (1_000, 4, 1)],
)
def test_auto_pipeline_follows_the_rule_within_the_cores(parameters: int, cores: int, expected: int) -> None:
    assert auto_pipeline_cores(parameters, cores) == expected
    (recipe, _) = recipes("inf1", parameters=parameters, pipeline_cores="auto", cores=cores)
    assert recipe.cores == expected
    assert recipe.compiler_args[-2:] == ("--neuroncore-pipeline-cores", str(expected))


@given(st.integers(0, 10**11), st.integers(1, 64))
def test_auto_pipeline_never_leaves_its_bounds(parameters: int, cores: int) -> None:
    assert 1 <= auto_pipeline_cores(parameters, cores) <= cores


def test_auto_pipeline_is_bounded_by_one_device_if_no_machine_is_named() -> None:
    assert recipes("inf1", pipeline_cores="auto")[0].cores == 4


@pytest.mark.parametrize(
    ("target", "dtype", "options", "sentence"),
    [
        ("inf2", "auto", {"pipeline_cores": "4"}, r"--pipeline-cores is for inf1: neuronx-cc .* a worker of its own"),
        ("trn1", "auto", {"pipeline_cores": "auto"}, "is for inf1"),
        ("inf1", "auto", {"pipeline_cores": "many"}, "neither a number of cores nor `auto`"),
        ("inf1", "auto", {"pipeline_cores": "0"}, "neither a number"),
        ("inf1", "auto", {"pipeline_cores": "8", "cores": 4}, "more than the 4 of --cores"),
        ("inf1", "auto", {"optlevel": 3}, "--optlevel is neuronx-cc's"),
        ("inf1", "auto", {"model_type": "generic"}, "--model-type is neuronx-cc's"),
        ("inf1", "auto", {"auto_cast_type": "tf32"}, "inf1 casts to bf16 or fp16, not to tf32"),
        ("inf1", "bf16", {"auto_cast": "none"}, "give one or the other"),
        ("inf2", "int8", {}, "not in int8"),
        ("inf2", "auto", {"auto_cast": "none", "auto_cast_type": "bf16"}, "casts nothing"),
        ("inf2", "auto", {"compiler_args": "--auto-cast all"}, "has an option of its own: use --auto-cast"),
        ("inf2", "auto", {"compiler_args": "--target=trn1"}, "use --target"),
        ("inf2", "auto", {"compiler_args": "-O3"}, "use --optlevel"),
        ("inf1", "auto", {"compiler_args": "--neuroncore-pipeline-cores 2"}, "use --pipeline-cores"),
        ("inf2", "auto", {"compiler_args": "--fast-math none"}, "is neuron-cc's"),
        ("inf2", "auto", {"compiler_args": "info"}, "must begin with an argument"),
        ("inf2", "auto", {"compiler_args": "--verbose 'info"}, "cannot be read"),
    ],
)
def test_impossible_options_are_refused(target: str, dtype: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CompileFailed, match=sentence):
        recipes(target, dtype, **options)
