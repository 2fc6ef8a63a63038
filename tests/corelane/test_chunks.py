from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel, Metaspace

from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact
from corelane.engine.text import chunks
from corelane.engine.text.chunks import ChunkReader, cut_text, read_chunks, reads_in_chunks
from corelane.engine.text.tokenize import Passage, TextTokens
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query

MODELS = Path(__file__).parent.parent.parent / "models"

TEXTS = st.text(
    st.sampled_from(" \n\t\r\u3000\u200b") | st.characters(codec="utf-8") | st.sampled_from("tower 1889 東é.,'"),
    max_size=200,
)

DOCUMENT = "the river was red . " * 20


@pytest.fixture(scope="module")
def tokenizer(tiny_artifact: Artifact) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_artifact.file(TOKENIZER_NAME)))


@pytest.fixture
def reader(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> ChunkReader:
    """For texts of more than 100 characters."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 100)
    return ChunkReader(tokenizer)


def byte_level(add_prefix_space: bool) -> Tokenizer:
    names = {name: number for number, name in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(names, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space)
    return tokenizer


def meta_space() -> Tokenizer:
    letters = sorted({*chunks.SAMPLE, "▁"} - {" "})
    tokenizer = Tokenizer(Unigram([("<unk>", -10.0), *((letter, -1.0) for letter in letters)], unk_id=0))
    tokenizer.normalizer = Replace("\n", " ")
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def finish(reader: ChunkReader) -> list[tuple[Passage, TextTokens, list[tuple[Hashable, Any]]]]:
    """Read everything; what came out, in order."""
    done = []
    while reader.documents:
        if (read := reader.read_on()) is not None:
            done.append(read)
    return done


def make_task(artifact: Artifact) -> QuestionAnsweringTask:
    tokenizer = Tokenizer.from_file(str(artifact.file(TOKENIZER_NAME)))
    return QuestionAnsweringTask(tokenizer, artifact.manifest.tokenizer, artifact.manifest.max_length)


@given(TEXTS, st.integers(1, 50))
def test_chunks_are_the_text_and_each_is_long_enough(text: str, size: int) -> None:
    parts = list(cut_text(text, size))
    assert "".join(parts) == text
    assert all(len(part) >= size for part in parts[:-1])
    assert all(part[0].isspace() for part in parts[1:])


@pytest.fixture(scope="module")
def built_in() -> Tokenizer:
    return Tokenizer.from_file(str(MODELS / "qa-minilm" / TOKENIZER_NAME))


@given(TEXTS, st.integers(1, 50))
def test_chunks_are_read_as_the_whole_is(tokenizer: Tokenizer, built_in: Tokenizer, text: str, size: int) -> None:
    for each in (tokenizer, built_in):
        context = read_chunks(each, cut_text(text, size))
        encoding = each.encode(text, add_special_tokens=False)
        assert context.ids.tolist() == encoding.ids
        assert [tuple(place) for place in context.places.tolist()] == encoding.offsets


def test_tokenizers_of_all_kinds_read_in_chunks_but_for_those_that_add_a_space(tokenizer: Tokenizer) -> None:
    assert [reads_in_chunks(each) for each in (tokenizer, byte_level(False), meta_space(), byte_level(True))] == [
        True,
        True,
        True,
        False,
    ]


def test_tokenizer_that_cannot_be_interrupted_gets_its_texts_whole() -> None:
    assert ChunkReader(byte_level(True)).short_chars is None


def test_only_long_contexts_are_read_in_chunks(reader: ChunkReader, tiny_artifact: Artifact) -> None:
    task = make_task(tiny_artifact)
    queries = [(chars, Query("who", "x" * chars)) for chars in (100, 101)]
    assert [key for key, _ in task.tokenize(queries)] == [100]
    assert [key for key, _ in task.read_on()] == [101]


def test_documents_take_turns(reader: ChunkReader) -> None:
    for text in (DOCUMENT * 10, DOCUMENT):
        reader.add(text, Query("who", text))
    assert [len(text) for (_, text), _, _ in finish(reader)] == [len(DOCUMENT), len(DOCUMENT * 10)]


def test_questions_on_one_document_share_its_reading(reader: ChunkReader) -> None:
    for key in "abc":
        reader.add(key, Query(key, DOCUMENT))
    [(_, _, queries)] = finish(reader)
    assert [key for key, _ in queries] == ["a", "b", "c"]


def test_dropped_queries_are_not_read_for(reader: ChunkReader) -> None:
    reader.add("a", Query("who", DOCUMENT))
    reader.add("b", Query("who", DOCUMENT * 2))
    reader.add("c", Query("what", DOCUMENT * 2))
    reader.drop(["a", "b", "unknown"])
    [((_, text), _, queries)] = finish(reader)
    assert (text, [key for key, _ in queries]) == (DOCUMENT * 2, ["c"])


def test_waiting_tokens_are_bounded_for_each_item(reader: ChunkReader) -> None:
    for key in "ab":
        reader.add(key, Query(key, DOCUMENT))
    assert reader.tokens(10**9) == 2 * len(DOCUMENT) // 4
    assert reader.tokens(7) == 14
