"""Text classification gives what Transformers' pipeline gives."""

from pathlib import Path
from typing import Any

import pytest

from corelane.engine.task import Query
from corelane.tasks.text_classification.wire import ClassificationOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, answer, compiled, save_tiny

LOADER = "AutoModelForSequenceClassification"

TEXTS = ("1889", "The room was clean and the staff were kind.", *(text[:60] for text in MULTI_SCRIPT))

LABELS = {0: "bad", 1: "good", 2: "neither"}


def pipeline(folder: Path) -> Any:
    import transformers

    return transformers.pipeline("text-classification", str(folder), top_k=None)


@pytest.mark.parametrize("kind", FAMILIES)
def test_labels_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    folder = save_tiny(kind, LOADER, tmp_path / kind, num_labels=3, id2label=LABELS)
    official = pipeline(folder)
    queries = [Query(None, text, ClassificationOptions()) for text in TEXTS]
    queries += [Query("A second text.", text, ClassificationOptions()) for text in TEXTS[:2]]
    asked = [{"text": query.text} | ({"text_pair": query.beside} if query.beside else {}) for query in queries]
    expected = [official(each) for each in asked]
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        results = answer(compiled(folder, tmp_path / dtype, dtype), queries)
        for result, those in zip(results, expected, strict=True):
            assert [each["label"] for each in result["labels"]] == [each["label"] for each in those] or dtype == "bf16"
            for each in result["labels"]:
                official_score = next(it["score"] for it in those if it["label"] == each["label"])
                assert each["score"] == pytest.approx(official_score, abs=near)
