from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from corelane.artifacts.manifest import Template, TokenizerSpec
from corelane.errors import ModelRefused
from corelane.tasks.question_answering.tune.training.dataset import (
    PASS_TOKENS,
    Dataset,
    Row,
    make_batches,
    passes,
    token_span,
    tokenize_examples,
    width_of,
)
from corelane.tasks.question_answering.tune.training.examples import Example, read_examples
from corelane.tasks.question_answering.tune.training.plan import TrainingOptions
from tests.plugins.tune.training.made import make_document, write_document

OPTIONS = TrainingOptions(max_length=48, batch_tokens=200, negatives=0.0, seed=5)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    found = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


@pytest.fixture(scope="module")
def spec(tokenizer: Tokenizer) -> TokenizerSpec:
    ids = {name: tokenizer.token_to_id(f"[{name}]") for name in ("CLS", "SEP", "PAD")}
    return TokenizerSpec(cls_id=ids["CLS"], sep_id=ids["SEP"], pad_id=ids["PAD"])


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    return read_examples(write_document(tmp_path_factory.mktemp("rows") / "q.json", make_document(articles=6)))


def long_example(answer_at: int) -> Example:
    words = ["the", "night", "was", "red", "."] * 40
    words[answer_at] = "paris"
    context = " ".join(words)
    start = context.index("paris")
    return Example("long", "where is it ?", context, ((start, start + 5),))


def test_every_answer_is_where_the_row_says(tokenizer: Tokenizer, spec: TokenizerSpec, examples: list[Example]) -> None:
    dataset = Dataset([examples], [1.0], tokenizer, spec, OPTIONS)
    seen = 0
    for rows in dataset.epoch(0):
        filled = dataset.fill(rows)
        for number, (row, spans) in enumerate(zip(rows, filled.spans, strict=True)):
            example = dataset.items[row.item].example
            texts = {tokenizer.decode(filled.batch.input_ids[number, a : b + 1].tolist()) for a, b in spans}
            assert texts == set(example.gold)
            seen += 1
    assert seen == len(examples)


@pytest.mark.parametrize("answer_at", [0, 3, 100, 199])
def test_a_long_passage_is_cut_around_its_answer_at_random_places(
    tokenizer: Tokenizer, spec: TokenizerSpec, answer_at: int
) -> None:
    dataset = Dataset([[long_example(answer_at)]], [1.0], tokenizer, spec, OPTIONS)
    starts = set()
    for epoch in range(20):
        [[row]] = dataset.epoch(epoch)
        assert row.length == OPTIONS.max_length
        [[(first, last)]] = dataset.fill([row]).spans
        assert tokenizer.decode(dataset.fill([row]).batch.input_ids[0, first : last + 1].tolist()) == "paris"
        starts.add(row.start)
    assert len(starts) > 1 or answer_at in (0, 199)


def test_fixed_rows_are_the_same_in_every_epoch(tokenizer: Tokenizer, spec: TokenizerSpec) -> None:
    dataset = Dataset([[long_example(100)]], [1.0], tokenizer, spec, OPTIONS, fixed=True)
    assert len({row for epoch in range(9) for [row] in dataset.epoch(epoch)}) == 1


def test_epochs_follow_from_the_seed_and_differ(
    tokenizer: Tokenizer, spec: TokenizerSpec, examples: list[Example]
) -> None:
    reading = replace(OPTIONS, negatives=0.5)
    one, same = (Dataset([examples], [1.0], tokenizer, spec, reading) for _ in range(2))
    other = Dataset([examples], [1.0], tokenizer, spec, replace(reading, seed=6))
    assert one.epoch(1) == same.epoch(1)
    assert one.epoch(1) != one.epoch(0)
    assert one.epoch(1) != other.epoch(1)


def test_a_share_takes_each_question_equally_often_over_the_epochs(
    tokenizer: Tokenizer, spec: TokenizerSpec, examples: list[Example]
) -> None:
    dataset = Dataset([examples, examples], [0.25, 2.0], tokenizer, spec, OPTIONS)
    counts = np.zeros(len(dataset.items), dtype=int)
    for epoch in range(4):
        drawn = [row.item for rows in dataset.epoch(epoch) for row in rows]
        assert len(drawn) == len(examples) // 4 + 2 * len(examples)
        np.add.at(counts, drawn, 1)
    assert set(counts[: len(examples)]) == {1}
    assert set(counts[len(examples) :]) == {8}


def test_made_up_unanswerable_rows_read_another_passage_of_the_article_without_the_answer(
    tokenizer: Tokenizer, spec: TokenizerSpec, examples: list[Example]
) -> None:
    dataset = Dataset([examples], [1.0], tokenizer, spec, replace(OPTIONS, negatives=1.0))
    made = [row for rows in dataset.epoch(0) for row in rows if row.passage != row.item]
    assert len(made) > 10
    for row in made:
        asked, read = dataset.items[row.item].example, dataset.items[row.passage].example
        assert asked.title == read.title
        assert not any(text in read.context for text in asked.gold)
        assert dataset.fill([row]).spans == [[]]


def test_batches_hold_each_row_once_and_little_padding() -> None:
    rng = np.random.default_rng(1)
    rows = [Row(n, n, 0, 9, int(length)) for n, length in enumerate(rng.integers(30, 384, size=5000))]
    batches = list(make_batches(rows, 4096, rng))
    assert sorted(row.item for batch in batches for row in batch) == list(range(5000))
    sizes = [len(batch) * width_of(batch) for batch in batches]
    assert max(sizes) <= 4096
    assert sum(sizes) < 1.08 * sum(row.length for row in rows)
    parts = [part for batch in batches for part in passes(batch)]
    assert sorted(row.item for part in parts for row in part) == list(range(5000))
    assert max(len(part) * width_of(part) for part in parts) <= PASS_TOKENS
    assert len({(len(part), width_of(part)) for part in parts}) < 80


def test_an_answer_within_a_word_takes_the_whole_word(tokenizer: Tokenizer) -> None:
    text = "the tower is in lovelace ."
    [item] = tokenize_examples([Example("a", "where ?", text, ((18, 20),))], tokenizer, {}, 40)
    [(first, last)] = item.answers
    places = item.context.places
    assert text[places[first][0] : places[last][1]] == "lovelace"
    assert token_span(item.context, len(text), len(text)) == (len(item.context) - 1, len(item.context) - 1)


def test_examples_that_do_not_fit_a_row_are_left_out(tokenizer: Tokenizer) -> None:
    long_question = Example("q", "where " * 60, "paris", ((0, 5),))
    long_answer = Example("a", "what ?", "red " * 60, ((0, 239),))
    kept = Example("k", "what ?", "red", ((0, 3),))
    found = list(tokenize_examples([long_question, long_answer, kept], tokenizer, {}, 40))
    assert [item.example.id for item in found] == ["k"]


@pytest.mark.parametrize("template", [Template(after=(2, 1), after_types=(0, 0), null_last=True), Template()])
def test_a_model_whose_rows_begin_with_no_token_of_their_own_is_refused(
    tokenizer: Tokenizer, spec: TokenizerSpec, examples: list[Example], template: Template
) -> None:
    with pytest.raises(ModelRefused, match="no first token"):
        Dataset([examples], [1.0], tokenizer, spec.model_copy(update={"template": template}), OPTIONS)
