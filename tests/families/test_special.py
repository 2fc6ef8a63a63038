"""What single architectures need: token types, long rows, large vocabularies, padding that is read in every dtype."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compile.build import build
from compile.model.adapt import ADAPTED
from compile.tasks.texts import LIGHTHOUSE
from corelane.artifacts.manifest import Artifact, Manifest
from corelane.errors import CompileFailed, ModelRefused
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, TokenizedQuery
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.compile.test_model import load
from tests.families.networks import save_tiny
from tests.families.official import Official
from tests.families.rows import ROWS, Row
from tests.families.test_architectures import CONTEXTS, LENGTH, QUESTION, STRIDE, check_logits, has_types

BY_KIND = {row.kind: row for row in ROWS}


def compiled(row: Row, folder: Path, buckets: str = "2x48", dtype: str = "fp32", target: str = "cpu") -> Artifact:
    source = save_tiny(row, folder / row.kind)
    settings = Settings(data_dir=folder / "data")
    return build(str(source), settings=settings, buckets=buckets, dtype=dtype, target=target)


def made_by(folder: Path, version: str | None) -> Path:
    """Note in a model's config which transformers made it."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"transformers_version": version}))
    return folder


@pytest.mark.parametrize(("version", "types"), [("4.57.6", True), ("5.0.0", False), (None, True)])
def test_albert_gets_the_token_types_that_it_was_trained_with(tmp_path: Path, version: str | None, types: bool) -> None:
    spec = load(made_by(save_tiny(BY_KIND["albert"], tmp_path / "albert"), version)).spec
    assert spec.uses_token_types == types
    assert spec.template is None


@pytest.mark.parametrize("kind", ["rembert", "splinter", "xlnet"])
def test_token_types_are_those_of_the_tokenizer(tmp_path: Path, kind: str) -> None:
    source = made_by(save_tiny(BY_KIND[kind], tmp_path / kind), "4.57.6")
    artifact = build(str(source), settings=Settings(data_dir=tmp_path / "data"), buckets="2x96", dtype="fp32")
    assert has_types(artifact)
    official = Official(source, with_types=True)
    check_logits(artifact, {context: official.read(QUESTION, context, LENGTH, STRIDE) for context in CONTEXTS[:4]})


def test_token_of_no_answer_may_be_the_last(tmp_path: Path) -> None:
    model = load(save_tiny(BY_KIND["xlnet"], tmp_path / "xlnet"))
    template = model.spec.layout()
    assert template.null_last
    assert (len(template.before), len(template.between), len(template.after)) == (0, 1, 2)
    task = QuestionAnsweringTask(model.tokenizer, model.spec, 48)
    (item,) = task.tokenize_all([Query("Who built it?", LIGHTHOUSE, AnswerOptions(doc_stride=8))])
    assert isinstance(item, TokenizedQuery)
    window = item.windows[0]
    start = np.zeros((1, 48), dtype=np.float32)
    start[0, item.context_at], start[0, window.length - 1] = 3, 2
    (found,) = task.decode((start, np.zeros_like(start)), [(item, window)])
    assert found.spans.margins[0] == 1


def test_other_templates_are_refused_by_workers_that_know_none(tmp_path: Path) -> None:
    manifests = {kind: compiled(BY_KIND[kind], tmp_path).manifest for kind in ("xlnet", "bert")}
    assert {kind: manifest.schema_version for kind, manifest in manifests.items()} == {"xlnet": 2, "bert": 1}
    stored = json.loads(manifests["bert"].model_dump_json(exclude={"tokenizer": {"template"}}))
    assert Manifest.model_validate(stored).tokenizer == manifests["bert"].tokenizer


@pytest.mark.parametrize("kind", sorted(ADAPTED))
def test_adapted_network_reads_no_padding(tmp_path: Path, kind: str) -> None:
    manifest = compiled(BY_KIND[kind], tmp_path).manifest
    assert f"network=adapted: {ADAPTED[kind].why}" in manifest.compiler_args


def test_adapted_network_is_refused_for_neuron(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match="convbert is compiled in a changed form, which only targets"):
        compiled(BY_KIND["convbert"], tmp_path, target="inf2")


def test_sparse_attention_ends_the_rows_that_a_model_reads(tmp_path: Path) -> None:
    row = replace(BY_KIND["big_bird"], config={"max_position_embeddings": 512, "block_size": 16})
    with pytest.raises(CompileFailed, match="positions for 176 tokens"):
        compiled(row, tmp_path, buckets="1x192")


def test_long_rows_and_a_large_vocabulary(tmp_path: Path) -> None:
    modern = BY_KIND["modernbert"]
    row = replace(modern, config={**modern.config, "max_position_embeddings": 8192, "vocab_size": 128_100})
    manifest = compiled(row, tmp_path, buckets="1x512").manifest
    assert (manifest.max_length, manifest.answers_equal) == (512, 1)


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("nomic_bert", {}, "do not load"),
        ("nystromformer", {"num_landmarks": 16}, "means groups of tokens"),
        ("xlnet", {"architectures": ["XLNetForQuestionAnswering"]}, "XLNet's|do not load|tokenizer|lacks"),
    ],
)
def test_models_that_look_right_are_refused(tmp_path: Path, kind: str, changes: dict[str, object], reason: str) -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model(kind, **changes)
    config.architectures = config.architectures or ["SomethingForQuestionAnswering"]
    save_tiny(BY_KIND["bert"], tmp_path / kind)
    config.save_pretrained(tmp_path / kind)
    with pytest.raises(ModelRefused, match=reason):
        load(tmp_path / kind)
