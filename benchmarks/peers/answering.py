"""Extractive question answering as a user of any peer would write it: pairs of texts in, answers out.

Windows of 384 tokens that overlap by 128, all windows of a batch of questions in one padded pass, and the best span by
its margin over "no answer here": transformers 5 has no pipeline for it, so its users write this. The weights are packed
for the CPU once, as Corelane's workers do it. It needs torch, numpy and tokenizers, nothing else.
"""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer

from benchmarks.peers.servers.given import tell_loaded
from corelane.engine.backends.cpu import settle

LENGTH, STRIDE, LONGEST = 384, 128, 30

#: Stands for "not allowed".
FORBIDDEN = np.float32(-1e9)


class Pair(NamedTuple):
    """A question and its passage."""

    question: str
    context: str


class Found(NamedTuple):
    """The answer to a question: its text, its place in the passage, and its margin over no answer."""

    text: str
    start: int
    end: int
    margin: float


def load_network(path: Path) -> Any:
    """Return a TorchScript file as a function of ids, mask and token types; its threads are set by the caller."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return settle(torch.jit.load(path, map_location="cpu").eval())


def dtype_of(artifact: Path) -> torch.dtype:
    """Return the number format in which transformers runs an artifact's model; fp32 stands in for int8."""
    manifest = json.loads((artifact / "manifest.json").read_text())
    return torch.bfloat16 if manifest["dtype"] == "bf16" else torch.float32


class Answerer:
    """A model and its tokenizer: answers batches of questions on one thread."""

    def __init__(self, artifact: Path, network: Any = None) -> None:
        """Load an artifact's tokenizer, and its network unless another is given."""
        torch.set_num_threads(1)
        manifest = json.loads((artifact / "manifest.json").read_text())
        self._pad = manifest["tokenizer"]["pad_id"]
        self._tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(
            min(LENGTH, manifest["max_length"]), stride=min(STRIDE, manifest["max_length"] // 3), strategy="only_second"
        )
        self._network = network or load_network(artifact / manifest["buckets"][0]["file"])

    def warm_up(self, batch: int) -> None:
        """Answer a full batch and a lone question, so that no caller waits for that; then call ``tell_loaded``."""
        pair = Pair("What does the little engine say?", "In the story the little engine says: I think I can. " * 40)
        self.answer([pair])
        self.answer([pair] * batch)
        tell_loaded()

    def answer(self, pairs: Sequence[Pair]) -> list[Found]:
        """Return the best answer to each question, in their order; one forward pass for all."""
        windows, owners = self._windows(pairs)
        width = max(len(window.ids) for window in windows)
        ids = np.full((len(windows), width), self._pad, dtype=np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, window in enumerate(windows):
            length = len(window.ids)
            ids[row, :length], types[row, :length], mask[row, :length] = window.ids, window.type_ids, 1
        with torch.inference_mode():
            starts, ends = self._network(*(torch.from_numpy(part) for part in (ids, mask, types)))
        best: list[Found | None] = [None] * len(pairs)
        for window, owner, start, end in zip(
            windows, owners, starts.float().numpy(), ends.float().numpy(), strict=True
        ):
            found = best_span(window, start, end, pairs[owner].context)
            kept = best[owner]
            if kept is None or found.margin > kept.margin:
                best[owner] = found
        return [found for found in best if found is not None]

    def _windows(self, pairs: Sequence[Pair]) -> tuple[list[Encoding], list[int]]:
        """Return the windows of all questions, and which question each belongs to."""
        windows, owners = [], []
        for owner, encoding in enumerate(self._tokenizer.encode_batch([tuple(pair) for pair in pairs])):
            for window in (encoding, *encoding.overflowing):
                windows.append(window)
                owners.append(owner)
        return windows, owners


def best_span(window: Encoding, start: Any, end: Any, context: str) -> Found:
    """Return the span of a window's passage with the greatest margin over the window's null."""
    places = [index for index, part in enumerate(window.sequence_ids) if part == 1]
    if not places:
        return Found("", 0, 0, float(FORBIDDEN))
    first, last = places[0], places[-1] + 1
    length, width = last - first, min(LONGEST, last - first)
    ends = np.full(length + width - 1, FORBIDDEN, dtype=np.float32)
    ends[:length] = end[first:last]
    margins = start[first:last, None] + np.lib.stride_tricks.sliding_window_view(ends, width)
    at, more = divmod(int(margins.argmax()), width)
    left, right = window.offsets[first + at][0], window.offsets[first + at + more][1]
    return Found(context[left:right], left, right, float(margins[at, more] - start[0] - end[0]))
