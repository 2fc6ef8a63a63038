"""Each architecture is compiled and answers as transformers' eager network does, or is refused with the reason."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import regex

from compile.build import build
from compile.model.loading import quiet_transformers
from compile.tasks.texts import EVERYTHING, LIGHTHOUSE, TOWER
from corelane.artifacts.manifest import Artifact
from corelane.engine.buckets import Bucket
from corelane.engine.runner import Runner, open_backend
from corelane.engine.text.tokenizer import open_tokenizer
from corelane.errors import ModelRefused
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.spans import whole_characters
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, TokenizedQuery
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.families.networks import save_tiny
from tests.families.official import Official, OfficialWindow, best_span
from tests.families.rows import ROWS, Row
from tests.families.texts import MULTI_SCRIPT

LENGTH, STRIDE, MOST_TOKENS = 96, 16, 12

QUESTION = "When was the tower built?"

#: Passages of one word, of a part of a row, of exactly one row and a few tokens more, and of several windows.
CONTEXTS = ("1889", TOWER, LIGHTHOUSE[:180], LIGHTHOUSE, EVERYTHING[:500], *MULTI_SCRIPT)

OPTIONS = AnswerOptions(doc_stride=STRIDE, max_answer_tokens=MOST_TOKENS, no_answer=False)


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold torch to one thread, and try no tokenizer in a process of its own: that takes longer than all else here."""
    from compile.model.timing import one_thread

    monkeypatch.setattr("corelane.engine.text.tokenizer._fault", lambda *_: None)
    with quiet_transformers(), one_thread():
        yield


def test_table_has_every_architecture_that_answers_questions() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES

    assert [row.kind for row in ROWS] == sorted(MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES)


@pytest.mark.parametrize("row", [row for row in ROWS if row.refused], ids=lambda row: row.kind)
def test_architecture_that_cannot_be_served_is_refused_with_the_reason(row: Row, tmp_path: Path) -> None:
    folder = save_tiny(row, tmp_path / row.kind)
    with pytest.raises(ModelRefused, match=row.refused) as refusal:
        build(str(folder), settings=Settings(data_dir=tmp_path / "data"))
    assert row.kind in refusal.value.detail


@pytest.mark.parametrize("row", [row for row in ROWS if not row.refused], ids=lambda row: row.kind)
def test_compiled_answers_are_those_of_transformers(row: Row, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if row.rare and not pytestconfig.getoption("--families"):
        pytest.skip("tried by `make families`")
    folder = save_tiny(row, tmp_path / row.kind)
    artifact = build(str(folder), settings=Settings(data_dir=tmp_path / "data"), buckets="2x96", dtype="fp32")
    official = Official(folder, with_types=has_types(artifact))
    windows = {context: official.read(QUESTION, context, LENGTH, STRIDE) for context in CONTEXTS}
    check_logits(artifact, windows)
    runner = Runner.open(open_backend("cpu"), artifact)
    runner.warm_up()
    results = runner.results_of([Query(QUESTION, context, OPTIONS) for context in CONTEXTS])
    for context, result in zip(CONTEXTS, results, strict=True):
        answer = result["answer"]
        assert context[answer["start"] : answer["end"]] == answer["text"] == answer["text"].strip()
        assert {answer["start"], answer["end"]} <= {0} | {found.end() for found in regex.finditer(r"\X", context)}
        assert result["windows"] == len(windows[context])
        assert (answer["start"], answer["end"]) == tidy(context, *best_span(context, windows[context], MOST_TOKENS))


def has_types(artifact: Artifact) -> bool:
    return any(np.any(types) for types in artifact.manifest.tokenizer.layout().part_types())


def check_logits(artifact: Artifact, windows: Mapping[str, Sequence[OfficialWindow]]) -> None:
    """Compare the logits of every window, each in a row with padding and beside another row."""
    task = QuestionAnsweringTask(open_tokenizer(artifact), artifact.manifest.tokenizer, LENGTH)
    backend = open_backend("cpu")
    model = backend.load(artifact)
    for context, expected in windows.items():
        (item,) = task.tokenize_all([Query(QUESTION, context, OPTIONS)])
        assert isinstance(item, TokenizedQuery)
        for window, official in zip(item.windows, expected, strict=True):
            rows = [(item, window), (item, item.windows[0])]
            got = backend.run(model, task.fill(Bucket(length=LENGTH, rows=2), rows, 2))
            large = max(1.0, float(np.abs(official.start).max()))
            assert len(official.start) == window.length
            np.testing.assert_allclose(got[0][0, : window.length], official.start, atol=1e-4 * large, rtol=0)
            np.testing.assert_allclose(got[1][0, : window.length], official.end, atol=1e-4 * large, rtol=0)


def tidy(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of an answer without white space at its edges and with whole characters."""
    while start < end - 1 and text[start].isspace():
        start += 1
    while start < end - 1 and text[end - 1].isspace():
        end -= 1
    return whole_characters(text, start, end)
