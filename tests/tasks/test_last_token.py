"""Decoders that embed a text by its last token give what sentence-transformers gives, whichever side is padded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.errors import ModelRefused
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.test_feature_extraction import answer, official, save, vectors
from tests.tasks.tiny import compiled, save_tiny

PROMPT = "Instruct: Given a web search query, retrieve passages\nQuery: "

#: Of one token, with what tokenizers append, and longer than a window of attention.
TEXTS = ("1889", "The room was clean.", "it</s>", "<|endoftext|>", *(text[:40] for text in MULTI_SCRIPT))

WINDOW = {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}


def end_texts(folder: Path, side: str, how: str = "") -> Any:
    """Save a tokenizer that pads one side, and appends a token if ``how`` says by what; return the token."""
    import transformers
    from tokenizers.processors import TemplateProcessing

    adds = {"add_eos_token": True} if how == "add_eos_token" else {}
    fast = transformers.AutoTokenizer.from_pretrained(folder, padding_side=side, **adds)
    fast.pad_token = end = fast.eos_token
    if how == "template":
        fast.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B:1 {end}:1", special_tokens=[(end, fast.eos_token_id)]
        )
    fast.save_pretrained(folder)
    return fast.eos_token_id


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("kind", "how"), [("qwen3", "template"), ("qwen2", "template"), ("mistral", "add_eos_token")])
def test_last_token_is_pooled_whichever_side_is_padded(kind: str, how: str, side: str, tmp_path: Path) -> None:
    import torch

    about: Any = {"network": {"max_seq_length": 200}, "positions": 200, "prompts": {"query": PROMPT}}
    folder = save(tmp_path / kind, kind, pooling="lasttoken", normalize=True, **about)
    end, artifact = end_texts(folder, side, how), compiled(folder, tmp_path / "data", buckets="8x32,4x192")
    model = official(folder)
    assert model.tokenizer.padding_side == side
    for name in (None, "query"):
        results = answer(artifact, TEXTS, prompt_name=name)
        assert vectors(results) == pytest.approx(model.encode(list(TEXTS), prompt_name=name), abs=2e-4)
        alone = answer(artifact, TEXTS[:1], prompt_name=name)
        assert vectors(alone) == pytest.approx(vectors(results)[:1], abs=1e-5)
    ids = [*model.tokenizer(PROMPT + TEXTS[1], add_special_tokens=False)["input_ids"], end]
    with torch.inference_mode():
        hidden = model[0].model(input_ids=torch.tensor([ids]))["last_hidden_state"][0, -1].numpy()
    [result] = answer(artifact, TEXTS[1:2], prompt_name="query")
    assert result["embedding"] == pytest.approx(hidden / np.linalg.norm(hidden), abs=2e-4)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("qwen2", WINDOW),
        ("qwen2", {"is_causal": False}),
        ("qwen3", WINDOW),
        ("gemma3_text", {}),
        ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 16}),
    ],
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_neither_neighbours_nor_padding_change_a_decoder(kind: str, changes: Any, dtype: str, tmp_path: Path) -> None:
    folder = save(tmp_path / kind, kind, pooling=["lasttoken", "mean"], changes=changes)
    end_texts(folder, "left")
    expected = official(folder).encode(list(TEXTS))
    artifact = compiled(folder, tmp_path / "data", dtype, buckets="8x32,4x96")
    together = vectors(answer(artifact, TEXTS))
    alone = np.concatenate([vectors(answer(artifact, [text])) for text in TEXTS[::4]])
    near = 2e-4 if dtype == "fp32" else 0.2
    assert together == pytest.approx(expected, abs=near)
    assert alone == pytest.approx(together[::4], abs=near / 10)


def test_texts_that_the_library_would_write_into_a_chat_are_refused(tmp_path: Path) -> None:
    import transformers

    folder = save_tiny("qwen3", "AutoModelForCausalLM", tmp_path / "chat")
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    fast.chat_template = "{% for each in messages %}<|im_start|>{{ each.content }}{% endfor %}"
    fast.save_pretrained(folder)
    with pytest.raises(ModelRefused, match="writes texts into the chat template of chat"):
        compiled(folder, tmp_path / "data", task="feature-extraction")
