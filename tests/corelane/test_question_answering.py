from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact
from corelane.engine.buckets import Bucket
from corelane.engine.task import RunnerLimits
from corelane.tasks.question_answering.engine.spans import Candidate, in_whole_words, whole_words
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, TokenizedQuery
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions

RIVER = "the river was red . the tower was blue ."


class CountingTokenizer:
    """A tokenizer that remembers the texts it was given whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.read: list[str] = []

    def encode(self, text: str, **options: Any) -> Any:
        return self.tokenizer.encode(text, **options)

    def encode_batch(self, texts: Sequence[str], **options: Any) -> list[Any]:
        self.read += texts
        return list(self.tokenizer.encode_batch(texts, **options))


@pytest.fixture
def tokenizer(tiny_artifact: Artifact) -> CountingTokenizer:
    return CountingTokenizer(Tokenizer.from_file(str(tiny_artifact.file(TOKENIZER_NAME))))


def make_task(tokenizer: CountingTokenizer, artifact: Artifact, cache_tokens: int) -> QuestionAnsweringTask:
    return QuestionAnsweringTask(
        tokenizer,  # type: ignore[arg-type]
        artifact.manifest.tokenizer,
        artifact.manifest.max_length,
        RunnerLimits(cache_tokens=cache_tokens),
    )


def read_one(task: QuestionAnsweringTask, query: Query) -> TokenizedQuery:
    [item] = task.tokenize_all([query])
    assert isinstance(item, TokenizedQuery)
    return item


def test_context_of_several_questions_is_tokenised_once(tokenizer: CountingTokenizer, tiny_artifact: Artifact) -> None:
    task = make_task(tokenizer, tiny_artifact, 0)
    task.tokenize_all([Query("who", RIVER), Query("what", RIVER), Query("what", "paris")])
    assert tokenizer.read == ["who", "what", "what", RIVER, "paris"]
    assert (task.work.texts_hit, task.work.texts_read) == (0, 2)


def test_context_of_a_later_call_is_not_tokenised_again(tokenizer: CountingTokenizer, tiny_artifact: Artifact) -> None:
    task = make_task(tokenizer, tiny_artifact, 100)
    first = read_one(task, Query("who", RIVER))
    again = read_one(task, Query("what", RIVER))
    assert tokenizer.read == ["who", RIVER, "what"]
    assert again.context is first.context
    assert (task.work.texts_hit, task.work.texts_read) == (1, 1)


def test_another_owner_is_not_served_by_what_was_kept_for_one(
    tokenizer: CountingTokenizer, tiny_artifact: Artifact
) -> None:
    task = make_task(tokenizer, tiny_artifact, 100)
    for owner in ("ada", "bob"):
        read_one(task, Query("who", RIVER, owner=owner))
    assert tokenizer.read.count(RIVER) == 2
    assert (task.work.texts_hit, task.work.texts_read) == (0, 2)


def test_context_larger_than_the_cache_is_read_all_the_same(
    tokenizer: CountingTokenizer, tiny_artifact: Artifact
) -> None:
    task = make_task(tokenizer, tiny_artifact, 20)
    document = RIVER * 50
    for _ in range(2):
        assert read_one(task, Query("who", document)).windows[-1].end == 50 * len(RIVER.split())
    assert tokenizer.read.count(document) == 2


def test_batch_holds_each_window_once_and_padding_sees_one_token(
    tokenizer: CountingTokenizer, tiny_artifact: Artifact
) -> None:
    task = make_task(tokenizer, tiny_artifact, 100)
    item = read_one(task, Query("who", RIVER))
    [window] = item.windows
    batch = task.fill(Bucket(length=32, rows=4), [(item, window)], height=2)
    spec = tiny_artifact.manifest.tokenizer
    row = [spec.cls_id, *item.question, spec.sep_id, *item.context.ids, spec.sep_id]
    assert batch.input_ids[0, : window.length].tolist() == row
    assert batch.attention_mask.sum(axis=1).tolist() == [window.length, 1]
    assert np.flatnonzero(batch.token_type_ids[0]).tolist() == list(range(item.context_at, window.length))


#: Some 500 tokens, of which a row of the tiny model holds some 60.
LONG = f"{RIVER} " * 40


def failed_with(task: QuestionAnsweringTask, query: Query) -> tuple[str, str]:
    [item] = task.tokenize_all([query])
    assert isinstance(item, dict)
    return item["error"]["code"], item["error"]["detail"]


def test_item_of_more_windows_than_its_job_allows_fails_with_what_it_has_and_may_have(
    tokenizer: CountingTokenizer, tiny_artifact: Artifact
) -> None:
    task = make_task(tokenizer, tiny_artifact, 0)
    whole = read_one(task, Query("who", LONG))
    count, tokens = len(whole.windows), len(whole.context)
    assert len(read_one(task, Query("who", LONG, AnswerOptions(max_windows=count))).windows) == count
    assert len(read_one(task, Query("who", "ada", AnswerOptions(truncation="error"))).windows) == 1
    for options, most, remedy in (
        (AnswerOptions(max_windows=count - 1), count - 1, "`max_windows`"),
        (AnswerOptions(truncation="error"), 1, "`truncation`"),
        (AnswerOptions(truncation="error", max_windows=count), 1, "`truncation`"),
    ):
        code, detail = failed_with(task, Query("who", LONG, options))
        assert code == "too_many_windows"
        assert f"has {tokens:,} tokens, which take {count:,} windows" in detail
        assert f"{most:,} are read" in detail
        assert remedy in detail


@pytest.mark.parametrize("options", [AnswerOptions(truncation="error"), AnswerOptions(max_windows=3)])
def test_document_of_too_many_windows_fails_once_all_of_it_is_known(
    tokenizer: CountingTokenizer, tiny_artifact: Artifact, options: AnswerOptions
) -> None:
    task = make_task(tokenizer, tiny_artifact, 0)
    assert task.tokenize([(0, Query("who", LONG * 50, options))]) == []
    found: list[Any] = []
    while not found:
        found = task.read_on()
    assert found[0][1]["error"]["code"] == "too_many_windows"


def test_rows_and_questions_are_as_short_as_asked(tokenizer: CountingTokenizer, tiny_artifact: Artifact) -> None:
    task = make_task(tokenizer, tiny_artifact, 0)
    short = read_one(task, Query("who", LONG, AnswerOptions(max_seq_len=32, doc_stride=4)))
    assert max(window.length for window in short.windows) == 32
    assert short.windows[-1].end == len(short.context)
    assert len(read_one(task, Query("who " * 100, RIVER, AnswerOptions(max_question_len=7))).question) == 7
    code, detail = failed_with(task, Query("who", RIVER, AnswerOptions(max_seq_len=4096)))
    assert (code, "4,096" in detail, f"{tiny_artifact.manifest.max_length}" in detail) == ("invalid_input", True, True)


def test_answers_are_widened_to_the_words_of_the_tokenizer(tokenizer: CountingTokenizer) -> None:
    text = "Die Fußgänger-Brücke kostete 3.500,75 Euro; 東京 and (unbelievably)\u3000cheap."
    whole: Any = tokenizer.tokenizer.encode(text, add_special_tokens=False)
    for (start, _), first in zip(whole.offsets, whole.word_ids, strict=True):
        for (_, end), last in zip(whole.offsets, whole.word_ids, strict=True):
            if start < end:
                words = whole.word_to_chars(first)[0], whole.word_to_chars(last)[1]
                assert whole_words(tokenizer.tokenizer, text, start, end) == words
    one, other, third = (Candidate(start, end, 0.0, 0.0, 0.0) for start, end in ((5, 6), (7, 9), (0, 2)))
    widened = in_whole_words(tokenizer.tokenizer, text, [one, other, third])
    assert [text[each.start : each.end] for each in widened] == ["Fußgänger", "Die"]
