"""What owners are charged beside what a core computes, for texts of several kinds.

    python benchmarks/charges.py [--quick]

Each kind is one item, read by the engine with the built-in model's tokenizer and fixed logits. Printed are the tokens
that were computed, and how many of them there are for each token that was charged: at submit by a quarter of the
characters (the rule before), at submit now, and once the core has read the item.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # noqa: TID251  # as in a worker: a core has one thread

from tokenizers import Tokenizer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.tokenise import MODEL, make_runner  # noqa: E402
from corelane.domain.dispatch import CHARS_PER_TOKEN, LEAST_TOKENS, PUBLIC, SPECIAL_TOKENS, Ref, estimate_tokens  # noqa: E402  # noqa: E402
from corelane.domain.jobs import Options  # noqa: E402
from corelane.store.dispatch import Claim, ClaimedSlice  # noqa: E402
from workers.core.in_flight import InFlight  # noqa: E402

#: Characters of each text; with ``--quick`` the second.
CHARS, QUICK_CHARS = 200_000, 8_000

ENGLISH = "The wide river was red at dusk, and the old bridge near the tower carried nobody until the morning came. "
QUESTION = "When did anybody cross the bridge?"

#: Name, text to repeat, question, stride.
KINDS = (
    ("short", "Ada wrote it.", QUESTION, 128),
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


def measure(name: str, question: str, context: str, stride: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """Run one item as a worker does; what it was charged and what it cost."""
    runner = make_runner(tokenizer)
    estimated = estimate_tokens(question, context, stride)
    ref = Ref("job", PUBLIC, 1, 0, 0, 1, estimated)
    stretch = ClaimedSlice(ref, runner.version, [(None, question, context)], Options(doc_stride=stride))
    in_flight = InFlight({runner.version: runner})
    in_flight.add(Claim("lease", ((ref, runner.version),)), [stretch])
    while not in_flight.is_empty:
        in_flight.finish(in_flight.start())
    [outcome] = in_flight.done["lease"]
    chars = len(question) + len(context)
    extra = len((question + context).encode()) - chars
    before = max(LEAST_TOKENS, SPECIAL_TOKENS + math.ceil(chars / CHARS_PER_TOKEN + extra / 2))
    computed = runner.work.tokens
    return {
        "kind": name,
        "windows": runner.work.windows,
        "computed": computed,
        "for a token charged before": round(computed / before, 2),
        "at submit": round(computed / estimated, 2),
        "once read": round(computed / outcome.ref.tokens, 2),
    }


def main() -> None:
    """Print one line of JSON a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short texts, a few seconds in all")
    chars = QUICK_CHARS if parser.parse_args().quick else CHARS
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for name, text, question, stride in KINDS:
        context = text if name == "short" else (text * math.ceil(chars / len(text)))[:chars]
        sys.stdout.write(json.dumps(measure(name, question, context, stride, tokenizer)) + "\n")


if __name__ == "__main__":
    main()
