"""Language models that rank by the logits of two tokens give what a cross-encoder of sentence-transformers gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from compile.model.source import find_source
from corelane.engine.runner import Runner, open_backend
from corelane.errors import ModelRefused
from corelane.tasks.text_ranking.task import CHAT_NAME
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.test_text_ranking import asked, sigmoid
from tests.tasks.tiny import answer, compiled, save_tiny

QUERIES = ("How tall is the tower?", "  so\n", "", "<|im_end|>?")

TEXTS = (
    *("", "a", "It is 330 metres tall.", " so", "so ", "\n\nso\n", "(so)", "...", "'s", "<|im_end|>", "<think>", "1"),
    *(text[:40] for text in MULTI_SCRIPT),
)

QWEN = """<|im_start|>system
Judge the Document.<|im_end|>
<|im_start|>user
<Instruct>: {{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Find it") }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""

#: One that turns to a generation, one of messages with parts, and one that ends in plain words.
CHATML = """{% for each in messages %}<|im_start|>{{ each.role }}
{{ each.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PARTS = CHATML.replace("each.content", "each.content[0].text")
PLAIN = "query: {{ messages[-2].content }} \ndocument: {{ messages[-1].content }} \nRelevance:"

DEFAULT = "{% for each in messages if each.role == 'user' %}{{ each.content }}{% endfor %}"


def chatting(
    folder: Path, template: Any, kind: str = "qwen3", loader: str = "AutoModelForCausalLM", **config: Any
) -> Path:
    """Save a tiny language model whose tokenizer has a chat template."""
    import transformers

    save_tiny(kind, loader, folder, max_position_embeddings=512, **config)
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    fast.chat_template, fast.pad_token = template, fast.pad_token or fast.eos_token
    fast.save_pretrained(folder)
    network = getattr(transformers, loader).from_pretrained(folder)
    network.resize_token_embeddings(len(fast))
    network.save_pretrained(folder)
    return folder


def judging(folder: Path, template: Any = QWEN, tokens: Any = (40, 41), *, options: Any = None, **about: Any) -> Path:
    """Save one as a cross-encoder, which gives no activation to the logit of the first token less the second's."""
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    its = {name: about.pop(name) for name in ("kind", "tie_word_embeddings") if name in about}
    plain = str(chatting(folder / "plain", template, **its))
    given = {} if options is None else {"processing_kwargs": {"chat_template": options}}
    transformer = Transformer(plain, transformer_task="text-generation", **given)
    activation = about.pop("activation_fn", torch.nn.Identity())
    modules = [transformer, LogitScore(*tokens)]
    CrossEncoder(modules=modules, device="cpu", activation_fn=activation, **about).save_pretrained(
        str(folder / "saved")
    )
    return folder / "saved"


def check(folder: Path, data: Path, makes: Any = float) -> Any:
    """Compile a model and compare its scores with those of the library; return the artifact."""
    from sentence_transformers import CrossEncoder

    encoder, artifact = CrossEncoder(str(folder), device="cpu"), compiled(folder, data, buckets="8x128,4x256")
    for query, result in zip(QUERIES, answer(artifact, [asked(query, TEXTS) for query in QUERIES]), strict=True):
        expected = [float(score) for score in encoder.predict([(query, text) for text in TEXTS])]
        found = {place["index"]: place["score"] for place in result["ranking"]}
        assert found == pytest.approx(dict(enumerate(expected)), abs=2e-4)
    return artifact


@pytest.mark.parametrize(
    ("template", "options", "tokens"),
    [
        (QWEN, None, (40, 41)),
        (CHATML, {"add_generation_prompt": True}, (40,)),
        (PARTS, None, (40, 41)),
        (PLAIN, None, (40, 41)),
        ({"default": DEFAULT, "reranker": PARTS}, {"chat_template": "reranker"}, (40, 41)),
    ],
)
def test_scores_are_those_of_a_cross_encoder(template: Any, options: Any, tokens: Any, tmp_path: Path) -> None:
    folder = judging(tmp_path, template, tokens, options=options)
    assert find_source(str(folder)).task == "text-ranking"
    artifact = check(folder, tmp_path / "data")
    assert artifact.manifest.schema_version == 5  # a worker that would leave the template out refuses it


@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("qwen2", True), ("gemma3_text", True)])
def test_prompt_activation_and_other_families(kind: str, tied: bool, tmp_path: Path) -> None:
    import torch

    about = {"prompts": {"web": "Find what answers the query."}, "default_prompt_name": "web"}
    folder = judging(tmp_path, kind=kind, tie_word_embeddings=tied, activation_fn=torch.nn.Sigmoid(), **about)
    check(folder, tmp_path / "data", sigmoid)


@pytest.mark.parametrize("template", [QWEN, None])
def test_classifier_with_a_template_or_a_prompt(template: Any, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    plain = chatting(tmp_path / "plain", template, loader="AutoModelForSequenceClassification", num_labels=1)
    about: Any = {"prompts": {"web": "Find it: "}, "default_prompt_name": "web"}
    CrossEncoder(str(plain), device="cpu", **about).save_pretrained(str(tmp_path / "saved"))
    check(tmp_path / "saved", tmp_path / "data")
    if template is not None:
        with pytest.raises(ModelRefused, match=r"save it with `CrossEncoder\(…\)\.save_pretrained"):
            compiled(plain, tmp_path / "data")


def test_every_window_of_a_long_text_has_the_words_around_it(tmp_path: Path) -> None:
    artifact = check(judging(tmp_path), tmp_path / "data")
    engine: Any = Runner.open(open_backend("cpu"), artifact)._task
    [item] = engine.tokenize_all([asked(QUERIES[0], ["The tower is red. " * 60])])
    assert len(item.windows) > 2
    after = json.loads((artifact.path / CHAT_NAME).read_text())["after"]
    for window in item.windows:
        beside, text = engine.row(item, window)
        assert window.length == len(beside) + len(text) + len(after)
    [refused] = answer(artifact, [asked(QUERIES[0] * 60, ["a"])])
    assert refused["error"]["code"] == "text_too_long"


def test_version_depends_on_the_template_and_the_tokens(tmp_path: Path) -> None:
    folder = judging(tmp_path)
    versions = {find_source(str(folder)).version}
    for name, change in (("chat_template.jinja", QWEN + " "), ("1_LogitScore/config.json", '{"true_token_id": 3}')):
        (folder / name).write_text(change)
        versions.add(find_source(str(folder)).version)
    assert len(versions) == 3


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (DEFAULT, "does not write a message of the role `query` and then one of `document`"),
        (QWEN.replace("| first }}", "| first | trim }}"), "each once and as it is: it changes them"),
        ("{{ raise_exception('no') }}", "as it is: no"),
        ("{{ messages[0].content }}{{ messages[1].content }}", "joins a text to its chat template"),
    ],
)
def test_template_that_changes_texts_is_refused_with_the_reason(template: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=reason):
        compiled(judging(tmp_path, template), tmp_path / "data")


def test_language_model_that_does_not_say_how_it_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"which adds `LogitScore`, or take a form of it .* `…-seq-cls`"):
        compiled(chatting(tmp_path / "plain", QWEN), tmp_path / "data", task="text-ranking")
    folder = judging(tmp_path / "other")
    (folder / "1_LogitScore" / "config.json").write_text("{}")
    with pytest.raises(ModelRefused, match="by the tokens None and None"):
        compiled(folder, tmp_path / "data")
    with pytest.raises(ModelRefused, match="does more to the logits of its tokens"):
        compiled(judging(tmp_path, kind="gemma2"), tmp_path / "data")
