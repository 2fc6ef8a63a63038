"""The yardstick for answers: the same model in plain PyTorch, eager fp32, one window at a time, with nothing of our
engine. Same windows (384 tokens, overlap 128), same rule: the best margin over the null wins.

    python benchmarks/eager_reference.py [FILE.json.gz] [--limit N] [--quick]
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import read_arguments
from benchmarks.runs import is_quick
from corelane.domain.squad import Question, best_over, exact_match, token_f1

HERE = Path(__file__).parent
MODEL = HERE.parent / "models" / "qa-minilm"
LENGTH, STRIDE, LONGEST = 384, 128, 30


def best_answer(model: Any, tokenizer: Any, question: Question) -> str:
    """Return the text of the best span over all windows, found by trying every span."""
    encoded = tokenizer(
        question.question,
        question.context,
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=False,
    )
    best, text = float("-inf"), ""
    for window in range(len(encoded["input_ids"])):
        inputs = {
            name: torch.tensor([encoded[name][window]]) for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        output = model(**inputs)
        start, end = output.start_logits[0], output.end_logits[0]
        null = float(start[0] + end[0])
        places = [i for i, part in enumerate(encoded.sequence_ids(window)) if part == 1]
        for s in places:
            last = min(s + LONGEST - 1, places[-1])
            e = s + int(end[s : last + 1].argmax())
            margin = float(start[s] + end[e]) - null
            if margin > best:
                offsets = encoded["offset_mapping"][window]
                best, text = margin, question.context[offsets[s][0] : offsets[e][1]]
    return text


def main() -> int:
    """Answer the file and print EM and F1."""
    questions = read_arguments(__doc__)[: 4 if is_quick() else None]
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForQuestionAnswering.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    exact = f1 = 0.0
    began = time.perf_counter()
    with torch.inference_mode():
        for question in questions:
            answer = best_answer(model.eval(), tokenizer, question)
            exact += best_over(exact_match, answer, question.gold)
            f1 += best_over(token_f1, answer, question.gold)
    count = len(questions)
    rate = count / (time.perf_counter() - began)
    print(json.dumps({"questions": count, "exact": 100 * exact / count, "f1": 100 * f1 / count, "per_s": rate}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
