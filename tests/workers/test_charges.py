"""What a core computes for an item is what its owner is charged in the end, with the built-in model's tokenizer."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from corelane.artifacts.manifest import TokenizerSpec
from corelane.domain.dispatch import PUBLIC, Ref, estimate_tokens
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import DEFAULT_BUCKETS, parse_buckets
from corelane.engine.runner import Runner, ServedModel
from corelane.store.dispatch import Claim, ClaimedSlice
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask
from corelane.tasks.question_answering.options import AnswerOptions
from workers.core.in_flight import InFlight

MODEL = Path(__file__).parents[2] / "models" / "qa-minilm"

#: The built-in tokenizer's special tokens.
SPEC = TokenizerSpec(cls_id=101, sep_id=102, pad_id=0, sep_count=1, uses_token_types=True)

CHARS = 8000

ENGLISH = "The wide river was red at dusk, and the old bridge near the tower carried nobody until the morning came. "
QUESTION = "When did anybody cross the bridge?"

#: Name, text to repeat, question, stride.
KINDS = (
    ("plain", ENGLISH, QUESTION, 128),
    ("plain, stride 0", ENGLISH, QUESTION, 0),
    ("plain, stride 400", ENGLISH, QUESTION, 400),
    ("punctuation", "?!.,;:-()", QUESTION, 128),
    ("punctuation, stride 400", "?!.,;:-()", QUESTION, 400),
    ("JSON", '{"id": 17, "tags": ["red", "wide"], "at": null}, ', QUESTION, 128),
    ("CJK", "東京の川は夕方に赤くなった。", QUESTION, 128),
    ("CJK, stride 400", "東京の川は夕方に赤くなった。", QUESTION, 400),
    ("single letters", "a b c d e f g ", QUESTION, 128),
    ("punctuation, stride 400, long question", "?!.,;:-()", "why " * 270, 400),
)


@pytest.fixture
def runner() -> Runner:
    """Return a runner whose model gives noise."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ladder = parse_buckets(DEFAULT_BUCKETS)
    noise = np.random.default_rng(5)

    def run(batch: WindowBatch) -> Logits:
        start, end = noise.normal(scale=3.0, size=(2, batch.rows, batch.bucket.length)).astype(np.float32)
        return (start, end)

    task = QuestionAnsweringTask(tokenizer, SPEC, ladder[-1].length)
    return Runner(task, ServedModel("noise", "noise@0", {}, ladder, flexible_rows=True), run)


@pytest.mark.parametrize(("name", "text", "question", "stride"), KINDS, ids=[kind[0] for kind in KINDS])
def test_tokens_computed_are_charged_once_read_and_nearly_so_at_submit(
    runner: Runner, name: str, text: str, question: str, stride: int
) -> None:
    context = (text * CHARS)[:CHARS]
    estimated = estimate_tokens(question, context, stride)
    ref = Ref("job", PUBLIC, 1, 0, 0, 1, estimated)
    claimed = ClaimedSlice(ref, runner.version, [(None, question, context)], AnswerOptions(doc_stride=stride))
    in_flight = InFlight({runner.version: runner})
    in_flight.add(Claim("lease", ((ref, runner.version),)), [claimed])
    while not in_flight.is_empty:
        in_flight.finish(in_flight.start())
    [outcome] = in_flight.done["lease"]
    assert outcome.ref.tokens == runner.work.tokens
    assert runner.work.tokens / estimated <= (2.1 if name == "single letters" else 1.1)
