"""A long item that several cores read is answered as one core would answer it, bit for bit."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.engine.runner import Runner
from corelane.engine.sharing import FOUND, FRAGMENT_BATCHES, fragment_size
from corelane.engine.task import UNLIMITED, Result, RunnerLimits, Window
from corelane.engine.text import chunks
from corelane.errors import RunFailed
from corelane.tasks.question_answering.engine.fragments import pack_spans, pack_windows, unpack_spans, unpack_windows
from corelane.tasks.question_answering.engine.spans import find_spans
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.tools.fakes import FixedBackend

#: A document of many windows.
LONG = Query("who wrote it", "the river was red . " * 120)

WORDS = ["tower", "river", "ada", "東京", "é", "👩‍🚀", "ﬁ", "berlin", ".", "the"]


class NoisyBackend(FixedBackend):
    """Its logits are noise that a row's tokens decide, [CLS] too; many are equal."""

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        noise = np.stack([self._row(row) for row in batch.input_ids * batch.attention_mask])
        return (np.ascontiguousarray(noise[:, 0]), np.ascontiguousarray(noise[:, 1]))

    def _row(self, row: np.ndarray) -> np.ndarray:
        seed = np.trim_zeros(row).tobytes()
        # Drawn place by place: it is the same however wide the batch is.
        return np.round(np.random.default_rng(list(seed)).normal(0, 2, size=(len(row), 2)).T, 1).astype(np.float32)


class FailingBackend(FixedBackend):
    def run(self, model: Model, batch: WindowBatch) -> Logits:
        raise RunFailed("this core runs nothing")


@pytest.fixture(scope="module")
def runners(tiny_artifact: Artifact) -> Iterator[tuple[Runner, Runner]]:
    both = Runner.open(NoisyBackend(), tiny_artifact), Runner.open(NoisyBackend(), tiny_artifact)
    yield both
    for runner in both:
        runner.close()


@pytest.fixture(scope="module")
def chunked(tiny_artifact: Artifact) -> Iterator[Runner]:
    """Return a runner that tokenizes a document in many chunks, and hands out windows meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_CHARS", 60)
        runner = Runner.open(NoisyBackend(), tiny_artifact)
        yield runner
        runner.close()


def read_part(runner: Runner, part: bytes, query: Query) -> bytes:
    runner.admit_fragment("part", part, query)
    answered: list[tuple[object, Result]] = []
    while not answered:
        answered = runner.start().finish()
    [(_, result)] = answered
    found: bytes = result[FOUND]
    return found


def answer_shared(own: Runner, other: Runner, query: Query, steps: "Iterator[int]") -> Result:
    """Answer a query while another runner reads parts of it; ``steps`` decide who does what next."""
    own.charges()
    own.admit([("item", query)])
    out: list[tuple[list[Window], bytes]] = []
    answered: list[tuple[object, Result]] = []
    while not answered:
        step = next(steps, 0)
        if step % 3 == 1 and own.windows_left("item"):
            out.append(own.hand_out("item", 1 + step // 3))
        elif step % 3 == 2 and out:
            windows, part = out.pop(step % len(out))
            if step > 20:
                own.take_back("item", windows)
            else:
                assert own.add_found("item", windows, read_part(other, part, query)) == sum(w.length for w in windows)
        elif own.has_rows():
            answered = own.start().finish()
        else:
            windows, part = out.pop()
            own.add_found("item", windows, read_part(other, part, query))
    assert not own.has_rows()
    [(_, result)] = answered
    assert len(own.charges()) == 1
    return result


@given(
    st.builds(lambda count, seed: random.Random(seed).choices(WORDS, k=count), st.integers(1, 200), st.integers(0, 99)),
    st.lists(st.integers(0, 30), max_size=60),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 40),
    st.booleans(),
)
def test_item_read_on_two_cores_is_answered_as_on_one(
    runners: tuple[Runner, Runner],
    chunked: Runner,
    words: list[str],
    steps: list[int],
    top_k: int,
    longest: int,
    stride: int,
    in_chunks: bool,
) -> None:
    own, other = runners
    options = AnswerOptions(top_k=top_k, max_answer_tokens=longest, doc_stride=stride, offsets=("utf16",))
    query = Query("who wrote it", " ".join(words), options)
    [alone] = own.results_of([query])
    assert answer_shared(chunked if in_chunks else own, other, query, iter(steps)) == alone


def open_growing(backend: FixedBackend, artifact: Artifact, limits: RunnerLimits = UNLIMITED) -> Runner:
    """Return a runner that has windows of a document whose end it has not tokenized."""
    runner = Runner.open(backend, artifact, limits)
    runner.admit([("item", LONG)])
    while not runner.windows_left("item"):
        assert runner.start().finish() == []
    assert runner.grows("item")
    assert list(runner.long_items) == ["item"]
    return runner


def finish(runner: Runner) -> list[tuple[object, Result]]:
    """Run batches until nothing is left, and return what was answered."""
    answered = []
    while runner.has_rows():
        answered += runner.start().finish()
    return answered


def test_windows_are_handed_out_while_the_rest_is_tokenized(chunked: Runner, tiny_artifact: Artifact) -> None:
    runner = open_growing(NoisyBackend(), tiny_artifact)
    [alone] = chunked.results_of([LONG])
    windows, part = runner.hand_out("item", 3)
    found = read_part(chunked, part, LONG)
    assert finish(runner) == []
    assert runner.windows_left("item") == 0
    runner.add_found("item", windows, found)
    assert finish(runner) == [("item", alone)]
    runner.close()


def test_document_that_proves_too_long_fails_though_windows_were_read(chunked: Runner, tiny_artifact: Artifact) -> None:
    runner = open_growing(NoisyBackend(), tiny_artifact, RunnerLimits(max_windows=12))
    windows, part = runner.hand_out("item", 3)
    [(key, result)] = finish(runner)
    assert (key, result["error"]["code"]) == ("item", "too_many_windows")
    assert runner.add_found("item", windows, read_part(chunked, part, LONG)) == 0
    assert not runner.has_rows()
    runner.close()


def test_window_that_fails_ends_the_tokenizing_too(chunked: Runner, tiny_artifact: Artifact) -> None:
    del chunked
    runner = open_growing(FailingBackend(), tiny_artifact)
    [(_, result)] = finish(runner)
    assert result["status"] == "failed"
    assert not runner.has_rows()
    runner.admit([("item", LONG)])
    runner.drop(["item"])
    assert not runner.has_rows()
    runner.close()


def test_part_that_fails_elsewhere_is_read_here(runners: tuple[Runner, Runner], tiny_artifact: Artifact) -> None:
    own, _ = runners
    query = Query("who", "the river was red . " * 60)
    failing = Runner.open(FailingBackend(), tiny_artifact)
    own.admit([("item", query)])
    before = own.windows_left("item")
    windows, part = own.hand_out("item", 3)
    assert read_part(failing, part, query) == b""
    assert own.add_found("item", windows, b"nothing that was packed") == 0
    assert own.windows_left("item") == before
    own.reset()
    failing.close()


def test_item_that_was_dropped_takes_nothing_in(runners: tuple[Runner, Runner]) -> None:
    own, other = runners
    query = Query("who", "the river was red . " * 60)
    own.admit([("item", query)])
    windows, part = own.hand_out("item", 3)
    found = read_part(other, part, query)
    own.drop(["item"])
    assert own.add_found("item", windows, found) == 0
    own.take_back("item", windows)
    assert not own.has_rows()


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_spans_travel_bit_for_bit(rows: int, longest: int, seed: int, several: bool) -> None:
    start, end = np.random.default_rng(seed).normal(0, 9, size=(2, rows, 24)).astype(np.float32)
    last = np.random.default_rng(seed).integers(4, 24, size=rows)
    found = find_spans(start, end, np.full(rows, 4), last, max_answer_tokens=longest, with_logits=several)
    for before, after in zip(found, unpack_spans(pack_spans(found), rows), strict=True):
        for name in ("starts", "ends", "margins"):
            one, other = getattr(before, name), getattr(after, name)
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
        assert np.float64(before.mass).tobytes() == np.float64(after.mass).tobytes()
        assert (before.logits is None) == (after.logits is None)
        if before.logits is not None and after.logits is not None:
            assert before.logits.starts.tobytes() == after.logits.starts.tobytes()
            assert before.logits.ends.tobytes() == after.logits.ends.tobytes()
            assert (before.logits.first, before.logits.max_answer_tokens) == (
                after.logits.first,
                after.logits.max_answer_tokens,
            )


@given(st.binary(max_size=200))
def test_bytes_that_nobody_packed_are_refused(payload: bytes) -> None:
    whole = pack_windows(Query("", ""), np.zeros(2, np.int32), np.arange(9, dtype=np.int32), 4, [Window(2, 8, 11)])
    for forged in (payload, whole[:-1], whole.replace(b"facts", b"fakes"), payload + b"\n" + payload):
        with pytest.raises(ValueError):  # noqa: PT011  # any of them: the part goes back
            unpack_windows(forged, Query("", ""))
        with pytest.raises(ValueError):  # noqa: PT011
            unpack_spans(forged, 1)


@given(st.integers(0, 3000), st.integers(0, 64), st.integers(1, 32))
def test_parts_leave_the_core_that_shares_a_batch_of_its_own(left: int, helpers: int, batch: int) -> None:
    size = fragment_size(left, helpers, batch)
    if not helpers or left < 2 * batch:
        assert size == 0
    else:
        assert batch <= size <= FRAGMENT_BATCHES * batch
        assert left - size >= batch
