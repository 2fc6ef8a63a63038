"""Heads that read one token give what transformers gives for a row alone, whatever texts and neighbours hold."""

from pathlib import Path
from typing import Any

import pytest

from corelane.engine.task import Query
from corelane.tasks.text_classification.wire import ClassificationOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import ONE_TOKEN, alike, answer, compiled, save_tiny

LOADER = "AutoModelForSequenceClassification"

#: What a user may type: the tokens that heads look for, at a text's beginning, in it, at its end and alone.
TYPED = ("</s>", "<s>", "<pad>", "<|endoftext|>", "<unk>", "<sep>")

TEXTS = (
    "1889",
    "The room was clean.",
    *(form.format(token) for token in TYPED for form in ("{0} it was", "it {0} was {0} here", "it was {0}", "a{0}{0}")),
    *(text[:50] for text in MULTI_SCRIPT),
)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, {}) for kind in ONE_TOKEN),
        *(("llama", {"pad_token_id": pad}) for pad in (None, -1)),
        ("gemma3_text", {"use_bidirectional_attention": True}),
    ],
)
def test_texts_that_hold_the_token_are_read_as_alone(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    import torch
    import transformers

    folder = save_tiny(kind, LOADER, tmp_path / kind, num_labels=3, **changes)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    pairs: list[tuple[str | None, str]] = [(beside, text) for text in TEXTS for beside in (None, "Who </s> is it?")]
    queries = [Query(beside, text, ClassificationOptions(function="none")) for beside, text in pairs]
    artifact = compiled(folder, tmp_path / "data", buckets="16x32,8x96")
    results, alone = answer(artifact, queries), [answer(artifact, [query])[0] for query in queries[::9]]
    for one, other in zip(results[::9], alone, strict=True):
        assert alike(one["labels"], other["labels"], 1e-5)
    for (beside, text), result in zip(pairs, results, strict=True):
        with torch.inference_mode():
            sides = [text] if beside is None else [text, beside]
            [expected] = network(**tokenizer(*sides, return_tensors="pt")).logits.tolist()
        found = {each["label"]: each["score"] for each in result["labels"]}
        assert [found[f"LABEL_{at}"] for at in range(3)] == pytest.approx(expected, abs=2e-4), (beside, text)
