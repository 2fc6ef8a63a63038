"""What a user of any peer would write around the network: question answering, and embeddings with mean pooling.

Of questions: windows of 384 tokens that overlap by 128, all windows of a batch in one padded pass, and the best span by
its margin over "no answer here": transformers 5 has no pipeline for it, so its users write this. Of texts: up to 32 in
a pass, padded to the longest of them. The weights are packed for the CPU once, as Corelane's workers do it. It needs
torch, numpy and tokenizers, nothing else.
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

#: Most texts of a pass.
ROWS = 32

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


class Loaded:
    """An artifact's network and its tokenizer, on one thread."""

    def __init__(self, artifact: Path) -> None:
        torch.set_num_threads(1)
        manifest = json.loads((artifact / "manifest.json").read_text())
        self._tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
        self._network = load_network(artifact / manifest["buckets"][0]["file"])
        self._pad, self._longest = manifest["tokenizer"]["pad_id"], manifest["max_length"]


class Answerer(Loaded):
    """Answers batches of questions."""

    def __init__(self, artifact: Path) -> None:
        super().__init__(artifact)
        self._tokenizer.no_padding()
        longest, stride = min(LENGTH, self._longest), min(STRIDE, self._longest // 3)
        self._tokenizer.enable_truncation(longest, stride=stride, strategy="only_second")

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


class Embedder(Loaded):
    """Makes a vector of each text."""

    def __init__(self, artifact: Path) -> None:
        super().__init__(artifact)
        self._tokenizer.enable_padding(pad_id=self._pad)
        self._tokenizer.enable_truncation(self._longest)

    def warm_up(self) -> None:
        """Embed a full batch and a lone text, so that no caller waits for that; then call ``tell_loaded``."""
        self.embed(["The little engine says: I think I can."] * (ROWS + 1))
        tell_loaded()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, in their order."""
        return [vector for first in range(0, len(texts), ROWS) for vector in self._pass(texts[first : first + ROWS])]

    def _pass(self, texts: Sequence[str]) -> list[list[float]]:
        rows = self._tokenizer.encode_batch(list(texts))
        given = ([row.ids for row in rows], [row.attention_mask for row in rows], [row.type_ids for row in rows])
        with torch.inference_mode():
            ids, mask, types = (torch.tensor(part, dtype=torch.int32) for part in given)
            tokens, seen = self._network(ids, mask, types)[0].float(), mask.unsqueeze(-1)
            means = (tokens * seen).sum(1) / seen.sum(1)
            return list(torch.nn.functional.normalize(means).tolist())


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
