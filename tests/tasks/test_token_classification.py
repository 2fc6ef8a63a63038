"""Token classification gives what Transformers' pipeline gives, and reads long texts whole."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from corelane.engine.task import Query, Window
from corelane.engine.text.engine import ReadRow
from corelane.tasks.token_classification.engine import most_inside
from corelane.tasks.token_classification.wire import EntityOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, answer, compiled, save_tiny

LOADER = "AutoModelForTokenClassification"

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}

TEXTS = (
    "Ada",
    "Ada Lovelace was born in London.",
    "The co-founder's e-mail: a@b.example 👩‍🚀 wrote to Zoë.",
    *(text[:70] for text in MULTI_SCRIPT),
)

STRATEGIES = ("none", "simple", "first", "average", "max")


@pytest.mark.parametrize("kind", FAMILIES)
def test_entities_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    import transformers

    folder = save_tiny(kind, LOADER, tmp_path / kind, num_labels=len(LABELS), id2label=LABELS)
    artifact = compiled(folder, tmp_path / "data")
    asked = [(text, strategy) for text in TEXTS for strategy in STRATEGIES]
    results = answer(artifact, [Query(None, text, EntityOptions(aggregation=how)) for text, how in asked])
    pipeline = transformers.pipeline("token-classification", str(folder))
    seen = 0
    for (text, strategy), result in zip(asked, results, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = pipeline(text, aggregation_strategy=strategy)
        assert [(each["label"], each["start"], each["end"]) for each in result["entities"]] == [
            (each.get("entity_group", each.get("entity")), each["start"], each["end"]) for each in expected
        ], (text, strategy)
        for ours, theirs in zip(result["entities"], expected, strict=True):
            assert ours["score"] == pytest.approx(float(theirs["score"]), abs=1e-4)
            assert ours["text"] == text[ours["start"] : ours["end"]]
        seen += len(expected)
    assert seen > len(asked)


def test_long_text_is_read_whole_and_each_token_where_it_stands_most_inside(tmp_path: Path) -> None:
    folder = save_tiny("bert", LOADER, tmp_path / "bert", num_labels=len(LABELS), id2label=LABELS)
    text = " ".join(f"Ada Lovelace met Mr {number} in London 👋🏽." for number in range(60))
    options = EntityOptions(aggregation="none", ignore_labels=(), offsets=("utf16", "bytes"))
    [result] = answer(compiled(folder, tmp_path / "data"), [Query(None, text, options)])
    assert result["windows"] > 5
    entities = result["entities"]
    assert [each["start"] for each in entities] == sorted(each["start"] for each in entities)
    assert not set("".join(text.split())) - set("".join(each["text"] for each in entities))
    for each in entities:
        start, end = each["offsets"]["bytes"]
        assert text.encode()[start:end].decode() == each["text"] == text[each["start"] : each["end"]]
        start, end = each["offsets"]["utf16"]
        assert text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == each["text"]


def test_token_is_judged_in_the_window_where_it_is_deepest() -> None:
    rows = [
        ReadRow(Window(start, end, end - start), (np.full((end - start, 1), mark, dtype=np.float32),))
        for mark, (start, end) in enumerate([(0, 10), (6, 16), (12, 22)])
    ]
    assert most_inside(rows[::-1], 22)[:, 0].tolist() == [0] * 8 + [1] * 6 + [2] * 8
