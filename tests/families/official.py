"""The answers of transformers itself: its tokenizer joins question and passage, its eager network reads each window."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class OfficialWindow:
    """A window as transformers cuts it: its logits, and each token's place in the passage (None outside)."""

    start: Floats
    end: Floats
    null: int
    places: Sequence[tuple[int, int] | None]


class Official:
    """A model and tokenizer loaded with transformers."""

    def __init__(self, folder: Path, with_types: bool) -> None:
        import torch
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        self.fast = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.network = AutoModelForQuestionAnswering.from_pretrained(
            folder, trust_remote_code=False, dtype=torch.float32
        ).eval()
        self.with_types = with_types

    def read(self, question: str, context: str, length: int, stride: int) -> list[OfficialWindow]:
        """Run every window by itself, without padding."""
        import torch

        encoded = self.fast(
            question,
            context,
            truncation="only_second",
            max_length=length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=self.with_types,
        )
        windows = []
        for number, ids in enumerate(encoded["input_ids"]):
            arguments: dict[str, Any] = {
                name: torch.tensor([encoded[name][number]])
                for name in ("input_ids", "attention_mask", "token_type_ids")
                if name in encoded
            }
            with torch.inference_mode():
                outputs = self.network(**arguments)
            null = ids.index(self.fast.cls_token_id) if self.fast.cls_token_id in ids else 0
            places = [
                place if part == 1 else None
                for place, part in zip(encoded["offset_mapping"][number], encoded.sequence_ids(number), strict=True)
            ]
            logits = outputs.start_logits[0].numpy(), outputs.end_logits[0].numpy()
            windows.append(OfficialWindow(*logits, null, places))
        return windows


def best_span(context: str, windows: Sequence[OfficialWindow], most_tokens: int) -> tuple[int, int]:
    """Return the characters of the best span that holds a word, over all windows."""
    found: list[tuple[float, int, int]] = []
    for window in windows:
        inside = [number for number, place in enumerate(window.places) if place is not None]
        for first in inside:
            for last in range(first, min(first + most_tokens, inside[-1] + 1)):
                begin, end = window.places[first], window.places[last]
                if begin is not None and end is not None and context[begin[0] : end[1]].strip():
                    null = window.start[window.null] + window.end[window.null]
                    found.append((float(window.start[first] + window.end[last] - null), begin[0], end[1]))
    _, start, stop = max(found, key=lambda each: each[0])
    return start, stop
