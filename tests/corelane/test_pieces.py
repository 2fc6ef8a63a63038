from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel, Metaspace

from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact
from corelane.engine.text import chunks as pieces
from corelane.engine.text.cache import Context
from corelane.engine.text.chunks import Unread, cut_text, read_pieces, reads_in_pieces
from corelane.engine.text.tokenize import Query

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
def unread(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Unread:
    """For texts of more than 100 characters."""
    monkeypatch.setattr(pieces, "PIECE_CHARS", 100)
    return Unread(tokenizer)


def byte_level(add_prefix_space: bool) -> Tokenizer:
    names = {name: number for number, name in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(names, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space)
    return tokenizer


def meta_space() -> Tokenizer:
    letters = sorted({*pieces.SAMPLE, "▁"} - {" "})
    tokenizer = Tokenizer(Unigram([("<unk>", -10.0), *((letter, -1.0) for letter in letters)], unk_id=0))
    tokenizer.normalizer = Replace("\n", " ")
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def finish(unread: Unread) -> list[tuple[str, Context, list[tuple[Hashable, Query]]]]:
    """Read everything; what came out, in order."""
    done = []
    while unread.tokens(10**9):
        if (read := unread.read_on()) is not None:
            done.append(read)
    return done


@given(TEXTS, st.integers(1, 50))
def test_pieces_are_the_text_and_each_is_long_enough(text: str, size: int) -> None:
    parts = list(cut_text(text, size))
    assert "".join(parts) == text
    assert all(len(part) >= size for part in parts[:-1])
    assert all(part[0].isspace() for part in parts[1:])


@pytest.fixture(scope="module")
def built_in() -> Tokenizer:
    return Tokenizer.from_file(str(MODELS / "qa-minilm" / TOKENIZER_NAME))


@given(TEXTS, st.integers(1, 50))
def test_pieces_are_read_as_the_whole_is(tokenizer: Tokenizer, built_in: Tokenizer, text: str, size: int) -> None:
    for each in (tokenizer, built_in):
        context = read_pieces(each, cut_text(text, size))
        encoding = each.encode(text, add_special_tokens=False)
        assert context.ids.tolist() == encoding.ids
        assert [tuple(place) for place in context.places.tolist()] == encoding.offsets


def test_tokenizers_of_all_kinds_read_in_pieces_but_for_those_that_add_a_space(tokenizer: Tokenizer) -> None:
    assert [reads_in_pieces(each) for each in (tokenizer, byte_level(False), meta_space(), byte_level(True))] == [
        True,
        True,
        True,
        False,
    ]


def test_tokenizer_that_cannot_be_interrupted_gets_its_texts_whole() -> None:
    assert not Unread(byte_level(True)).takes(Query("who", "x " * pieces.PIECE_CHARS))


def test_only_long_contexts_are_taken(unread: Unread) -> None:
    assert not unread.takes(Query("who", "x" * 100))
    assert unread.takes(Query("who", "x" * 101))


def test_document_is_done_after_its_last_piece(unread: Unread, tokenizer: Tokenizer) -> None:
    query = Query("who", DOCUMENT)
    unread.add("key", query)
    assert [unread.read_on() for _ in range(3)] == [None] * 3
    read = unread.read_on()
    assert read is not None
    text, context, queries = read
    assert (text, queries) == (DOCUMENT, [("key", query)])
    assert context.ids.tolist() == tokenizer.encode(DOCUMENT, add_special_tokens=False).ids
    assert unread.read_on() is None


def test_documents_take_turns(unread: Unread) -> None:
    for text in (DOCUMENT * 10, DOCUMENT):
        unread.add(text, Query("who", text))
    assert [len(text) for text, _, _ in finish(unread)] == [len(DOCUMENT), len(DOCUMENT * 10)]


def test_questions_on_one_document_share_its_reading(unread: Unread) -> None:
    for key in "abc":
        unread.add(key, Query(key, DOCUMENT))
    [(_, _, queries)] = finish(unread)
    assert [key for key, _ in queries] == ["a", "b", "c"]


def test_dropped_queries_are_not_read_for(unread: Unread) -> None:
    unread.add("a", Query("who", DOCUMENT))
    unread.add("b", Query("who", DOCUMENT * 2))
    unread.add("c", Query("what", DOCUMENT * 2))
    unread.drop(["a", "b", "unknown"])
    [(text, _, queries)] = finish(unread)
    assert (text, [key for key, _ in queries]) == (DOCUMENT * 2, ["c"])


def test_waiting_tokens_are_bounded_for_each_item(unread: Unread) -> None:
    for key in "ab":
        unread.add(key, Query(key, DOCUMENT))
    assert unread.tokens(10**9) == 2 * len(DOCUMENT) // 4
    assert unread.tokens(7) == 14
    unread.clear()
    assert unread.tokens(10**9) == 0


def test_places_of_a_far_piece_are_those_of_the_whole_text(tokenizer: Tokenizer) -> None:
    context = read_pieces(tokenizer, cut_text(DOCUMENT, 7))
    starts, ends = context.places.T
    assert "".join(DOCUMENT[start:end] for start, end in zip(starts, ends, strict=True)) == DOCUMENT.replace(" ", "")
    assert np.all(starts[1:] >= ends[:-1])
