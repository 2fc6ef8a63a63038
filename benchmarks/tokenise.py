"""What the engine does beside the model, in µs an item: tokenise, cut windows, fill batches, find and write answers.

    python benchmarks/tokenise.py [FILE.json.gz] [--limit N] [--learn FILE.json.gz] [--answers FILE.json] [--quick]

Two sets of items, the file's questions and *synthetic* ones of 177 tokens each, every one with a context of its own.
The usual way (``AutoTokenizer`` with truncation, stride and offsets, one call an item, tokens only) takes turns with
ours, 32 items at a time; the model is a table of fixed logits. *First*: nothing was read before. *Cold*: other texts
were (``--learn``), these contexts not. *Warm*: these contexts are kept. ``stages`` are the engine's parts called by
themselves, ``engine`` is a Runner from admission to result, batching and all. Times are CPU time of the thread, the
least of several rounds. ``--answers`` writes what was answered, to compare two versions.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # noqa: TID251  # as in a worker: a core has one thread

import numpy as np
from tokenizers import Tokenizer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.questions import DEFAULT_FILE, questions_of  # noqa: E402
from benchmarks.runs import QUICK, is_quick, keep  # noqa: E402
from corelane.artifacts.manifest import TokenizerSpec  # noqa: E402
from corelane.domain.jobs import Options  # noqa: E402
from corelane.engine.backends.protocol import Batch, Logits  # noqa: E402
from corelane.engine.batching import smallest_fit  # noqa: E402
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, parse_buckets  # noqa: E402
from corelane.engine.question_answering.task import QuestionAnsweringTask, TokenizedQuery  # noqa: E402
from corelane.engine.runner import Runner, ServedModel  # noqa: E402
from corelane.engine.task import Query  # noqa: E402
from corelane.engine.windows import Window  # noqa: E402

MODEL = HERE.parent / "models" / "qa-minilm"
LEARN = DEFAULT_FILE.parent / "squad-train-v2.json.gz"
OPTIONS = Options(no_answer=False)
LADDER = parse_buckets(DEFAULT_BUCKETS)
LENGTH = LADDER[-1].length

#: Tokens of a synthetic item: a question and a passage of SQuAD's usual size.
ITEM_TOKENS = 177

#: Items taken in at a time: about what a worker claims.
TOGETHER = 32

ROUNDS = 7

#: Tokens of contexts kept where they are; more than the file has.
CACHE_TOKENS = 1_000_000

#: The built-in tokenizer's special tokens.
SPEC = TokenizerSpec(cls_id=101, sep_id=102, pad_id=0, sep_count=1, uses_token_types=True)


class Table:
    """Logits that lie ready: of a likely span here and there, the same for every batch of a shape."""

    def __init__(self) -> None:
        noise = np.random.default_rng(5).normal(scale=3.0, size=(2, 64, LENGTH))
        self._start, self._end = noise.astype(np.float32)

    def run(self, batch: Batch) -> Logits:
        """Return a corner of the table."""
        return Logits(self._start[: batch.rows, : batch.bucket.length], self._end[: batch.rows, : batch.bucket.length])


def make_task(tokenizer: Tokenizer, cache_tokens: int = 0) -> QuestionAnsweringTask:
    """Return the built-in model's task."""
    return QuestionAnsweringTask(tokenizer, SPEC, LENGTH, cache_tokens=cache_tokens)


def make_runner(tokenizer: Tokenizer, cache_tokens: int = 0) -> Runner:
    """Return a runner of the table in place of a model."""
    served = ServedModel("table", "table@0", {}, LADDER, flexible_rows=True)
    return Runner(make_task(tokenizer, cache_tokens), served, Table().run)


class Stopwatch:
    """CPU time of this thread by name, summed until it is read."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        began = time.thread_time()
        yield
        self.times[name] = self.times.get(name, 0.0) + time.thread_time() - began


def synthetic(queries: Sequence[Query], tokenizer: Tokenizer) -> list[Query]:
    """Items of 177 tokens: stretches of the file's text that overlap nowhere, each with a question of about there."""
    contexts = list(dict.fromkeys(query.context for query in queries))
    by_context = {query.context: query.question for query in queries}
    made = []
    for context, following in pairwise(contexts):
        question = by_context[context]
        room = ITEM_TOKENS - 3 - len(tokenizer.encode(question, add_special_tokens=False))
        encoding = tokenizer.encode(f"{context} {following}", add_special_tokens=False)
        if len(encoding) > room:
            text = f"{context} {following}"[: encoding.offsets[room - 1][1]]
            made.append(Query(question, text, OPTIONS))
    return made[::2]


def pieces_of(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
    """As they are taken in."""
    return (queries[at : at + TOGETHER] for at in range(0, len(queries), TOGETHER))


def by_bucket(items: Sequence[TokenizedQuery]) -> list[tuple[Bucket, list[tuple[TokenizedQuery, Window]]]]:
    """Batches of the windows of some items, each in the shortest bucket that fits."""
    rows: dict[Bucket, list[tuple[TokenizedQuery, Window]]] = {}
    for item in items:
        for window in item.windows:
            rows.setdefault(smallest_fit(window.length, LADDER), []).append((item, window))
    return [
        (bucket, found[at : at + bucket.rows])
        for bucket, found in rows.items()
        for at in range(0, len(found), bucket.rows)
    ]


def run_stages(task: QuestionAnsweringTask, queries: Sequence[Query], watch: Stopwatch) -> None:
    """Run the parts of the engine one after the other, without its batching."""
    table = Table()
    for part in pieces_of(queries):
        with watch.part("read"):
            read = task.tokenize_all(part)
        items = [item for item in read if isinstance(item, TokenizedQuery)]
        found: dict[int, list[Any]] = {}
        for bucket, rows in by_bucket(items):
            with watch.part("fill"):
                batch = task.fill(bucket, rows, len(rows))
            logits = table.run(batch)
            with watch.part("search"):
                spans = task.decode(logits, rows)
            for (item, _), span in zip(rows, spans, strict=True):
                found.setdefault(id(item), []).append(span)
        with watch.part("compose"):
            for item in items:
                task.compose(item, found[id(item)])


def run_engine(runner: Runner, queries: Sequence[Query], watch: Stopwatch, name: str) -> list[dict[str, Any]]:
    """Run a whole runner with a backend that takes no time."""
    results = []
    for part in pieces_of(queries):
        with watch.part(name):
            results += runner.answer(part)
    return results


def run_usual(call: Callable[..., Any], queries: Sequence[Query], watch: Stopwatch) -> None:
    """Make the usual call, an item at a time."""
    for part in pieces_of(queries):
        with watch.part("usual"):
            for query in part:
                call(
                    query.question,
                    query.context,
                    truncation="only_second",
                    max_length=LENGTH,
                    stride=OPTIONS.doc_stride,
                    return_overflowing_tokens=True,
                    return_offsets_mapping=True,
                )


def measure_round(
    queries: Sequence[Query], learned: Sequence[Query], tokenizer: Tokenizer, usual: Callable[..., Any]
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """One turn of each, in seconds a name, and the answers."""
    watch = Stopwatch()
    first, later = (make_runner(tokenizer, CACHE_TOKENS) for _ in range(2))
    staged = make_task(tokenizer, CACHE_TOKENS)
    run_engine(later, learned, Stopwatch(), "learning")
    staged.tokenize_all(learned)
    gc.collect()
    gc.disable()
    run_usual(usual, queries, watch)
    answers = run_engine(first, queries, watch, "first")
    for state in ("cold", "warm"):
        run_usual(usual, queries, watch)
        if run_engine(later, queries, watch, state) != answers:
            raise SystemExit(f"answers from {state} contexts differ")
        stages = Stopwatch()
        run_stages(staged, queries, stages)
        watch.times |= {f"{state}.{name}": seconds for name, seconds in stages.times.items()}
    gc.enable()
    watch.times["usual"] /= 3
    return watch.times, answers


def measure(
    queries: Sequence[Query], learned: Sequence[Query], tokenizer: Tokenizer, usual: Callable[..., Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """µs an item by way and state, the least of the rounds, and the answers."""
    rounds = [measure_round(queries, learned, tokenizer, usual) for _ in range(1 if is_quick() else ROUNDS)]
    least = {name: min(times[name] for times, _ in rounds) * 1e6 / len(queries) for name in rounds[0][0]}
    tokens = sum(len(usual(query.question, query.context)["input_ids"]) for query in queries) / len(queries)
    figures = {
        "items": len(queries),
        "contexts": len({query.context for query in queries}),
        "tokens_an_item": round(tokens, 1),
        "usual": round(least["usual"], 1),
        "engine": {state: round(least[state], 1) for state in ("first", "cold", "warm")},
        "stages": {
            state: {
                name.split(".")[1]: round(value, 1) for name, value in least.items() if name.startswith(f"{state}.")
            }
            for state in ("cold", "warm")
        },
    }
    return figures, rounds[0][1]


def main() -> int:
    """Measure both sets, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument(QUICK, action="store_true", help="one round of the examples, and no figures kept")
    parser.add_argument("--learn", type=Path, default=LEARN, help="texts read before the cold contexts")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--answers", type=Path, help="write the answers there")
    arguments = parser.parse_args()
    from transformers import AutoTokenizer

    usual = AutoTokenizer.from_pretrained(MODEL)
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    asked, learned = (
        [Query(q.question, q.context, OPTIONS) for q in questions_of(path)]
        for path in (arguments.file, None if is_quick() else arguments.learn)
    )
    asked = asked[: arguments.limit]
    learned = list({query.context: query for query in learned}.values())
    figures, answers = {}, {}
    for name, queries in (("file", asked), ("synthetic", synthetic(asked, tokenizer))):
        figures[name], answers[name] = measure(queries, learned, tokenizer, usual)
    print(json.dumps(figures, indent=2))
    if arguments.answers:
        arguments.answers.write_text(json.dumps(answers))
    else:
        keep("tokenise", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
