"""Feature extraction: the vectors of each row's tokens become one vector of the text."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import orjson
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact, check_file
from corelane.domain.jobs import JobStatus
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query, Ready, Result, RunnerLimits, Window, failure
from corelane.engine.text.engine import ReadRow, TextEngine, TokenizedText, Tokens, cut_off
from corelane.engine.text.tokenize import TextTokens
from corelane.errors import CorelaneError, InvalidInput, OutputTooLarge
from corelane.tasks.feature_extraction.pooling import EMPTY_PROMPTS, LAYERS_NAME, combine, finish, pool, through

#: Most digits of a token's id. Python reads longer numbers slowly, and no vocabulary has as many tokens.
MOST_DIGITS = 10


class EmbeddingEngine(TextEngine):
    """Embeds texts with one model."""

    #: How vectors are made unless a query says otherwise, from the manifest's ``facts``.
    pooling: Sequence[str] = ("mean",)
    normalize: bool = False
    #: The most bytes that the vectors of a text's tokens may have.
    most_bytes: float = math.inf
    #: The length of a token's vector, and the default length of a text's vector; None means all numbers.
    size: int | None = None
    dimensions: int | None = None
    prompts: Mapping[str, str]
    default_prompt: str | None = None
    #: The layers behind the pooling, and their weights.
    layers: Sequence[Mapping[str, Any]] = ()
    weights: Mapping[str, Any]
    #: How many tokens at the beginning of a row are not pooled, by the name of the prompt.
    skipped: Mapping[str | None, int]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.prompts, self.skipped = {}, {}

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read how its vectors are made."""
        opened = super().open(artifact, limits, calibration)
        opened.most_bytes = limits.max_output_bytes
        opened.configure(artifact.manifest.facts)
        if opened.layers:
            check_file(artifact, LAYERS_NAME)
            with np.load(artifact.file(LAYERS_NAME), allow_pickle=False) as weights:
                opened.weights = dict(weights)
        return opened

    def configure(self, facts: Mapping[str, Any]) -> None:
        """Set from a manifest's facts how vectors are made."""
        self.pooling, self.normalize = facts["pooling"], facts["normalize"]
        self.size, self.dimensions = facts["size"], facts.get("dimensions")
        self.prompts, self.default_prompt = EMPTY_PROMPTS | facts.get("prompts", {}), facts.get("default_prompt")
        self.layers = facts.get("layers", ())
        if facts.get("lowercase"):
            known = self._tokenizer.normalizer
            self._tokenizer.normalizer = Normalizers([Lowercase(), *([] if known is None else [known])])
        if not facts.get("pools_prompt", True):
            # sentence-transformers counts all tokens of a row but the last: XLNet has two behind the text.
            specials = len(self._single.before) + max(0, len(self._single.after) - 1)
            self.skipped = {
                name: specials + len(self._tokenizer.encode(prompt, add_special_tokens=False).ids)
                for name, prompt in self.prompts.items()
                if prompt
            }

    def refusal(self, query: Query) -> CorelaneError | None:
        """Return why this model cannot serve a query's options; None if it can."""
        name, dimensions = query.options.prompt_name, query.options.dimensions
        if name is not None and name not in self.prompts:
            known = ", ".join(map(repr, self.prompts))
            return InvalidInput(f"this model has no prompt {name!r}: its prompts are {known}")
        most = None if self.size is None else self.size * len(self._poolings(query))
        for layer in self.layers:
            if most != layer.get("inputs", most):
                return InvalidInput(
                    f"this model's pooled vectors have {layer['inputs']:,} numbers, and `pooling` would give {most:,}"
                )
            most = layer.get("outputs", most)
        if dimensions is not None and most is not None and dimensions > most:
            return InvalidInput(f"this model's vectors have {most:,} numbers, and `dimensions` asks for {dimensions:,}")
        return None

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[Any]]:
        """Tokenize queries, each with its prompt before its text."""
        return super().tokenize([(key, self._prompted(query)) for key, query in queries])

    def cut(self, query: Query, besides: Sequence[Tokens], texts: Sequence[TextTokens]) -> Any:
        """Cut a text into windows; return its tokens, or what its ids stand for, as the result if options say so."""
        if query.options.output not in ("pieces", "decoded"):
            return super().cut(query, besides, texts)
        pieces = self._decoded(query.text) if query.options.output == "decoded" else self._pieces(query, texts[0])
        if (size := len(orjson.dumps(pieces))) > self.most_bytes:
            return failure(query, self._too_large(size))
        told = {"status": str(JobStatus.SUCCEEDED), "embedding": None, "tokens": len(pieces)}
        return {**told, "windows": 0, "error": None, "pieces": pieces}

    def _pieces(self, query: Query, text: TextTokens) -> list[dict[str, Any]]:
        before, after = (
            [{"id": each, "text": self._tokenizer.id_to_token(each), "special": True} for each in ids.tolist()]
            for ids in (self._single.before, self._single.after)
        )
        inside = [
            {"id": each, "text": query.text[start:stop], "special": False, "start": start, "stop": stop}
            for each, (start, stop) in zip(text.ids.tolist(), text.places.tolist(), strict=True)
        ]
        return before + inside + after

    def _decoded(self, text: str) -> list[dict[str, Any]]:
        known = self._tokenizer.get_vocab_size()
        ids = [int(each) if each.isdecimal() and len(each) < MOST_DIGITS else known for each in text.split()]
        if not ids or max(ids) >= known:
            raise InvalidInput(f"the text is not a list of token ids of this model: they are below {known:,}")
        return [
            {"text": self._tokenizer.decode(ids, skip_special_tokens=not special), "special": special}
            for special in (False, True)
        ]

    def _too_large(self, size: int) -> OutputTooLarge:
        return OutputTooLarge(
            f"what is said of its tokens has {size:,} bytes, and at most {self.most_bytes:,} are taken: shorten the "
            "text, or have the operator raise CORELANE_MAX_OUTPUT_BYTES"
        )

    def _prompted(self, query: Query) -> Query:
        prompt = None if query.options.output == "decoded" else self.prompts.get(self._prompt(query))
        return replace(query, text=prompt + query.text) if prompt else query

    def _prompt(self, query: Query) -> Any:
        return query.options.prompt_name or self.default_prompt

    def _poolings(self, query: Query) -> Sequence[str]:
        return self.pooling if query.options.pooling is None else (query.options.pooling,)

    def decode(self, logits: Logits, rows: Sequence[tuple[Any, Window]]) -> list[Any]:
        """Return the vector of each row."""
        return [
            ReadRow(window, (self._pool(tokens[: window.length], item.query, window),))
            for tokens, (item, window) in zip(logits[0], rows, strict=False)
        ]

    def _pool(self, tokens: Any, query: Query, window: Window) -> Any:
        if query.options.output == "tokens":
            return np.asarray(tokens, dtype=np.float32).copy().ravel()
        skipped = self.skipped.get(self._prompt(query), 0) if self.skipped and not window.start else 0
        return pool(tokens, self._poolings(query), skipped)

    def compose(self, item: TokenizedText, decoded: Sequence[ReadRow]) -> Result:
        """Return the vector of a text from those of its windows."""
        options: Any = item.query.options
        windows = [read.window for read in decoded]
        vector = combine([read.values[0] for read in decoded], [window.end - window.start for window in windows])
        if options.output == "text":
            vector = self._finished(vector, options)
        elif vector.nbytes > self.most_bytes:
            return failure(item.query, self._too_large(vector.nbytes))
        return {
            "status": str(JobStatus.SUCCEEDED),
            "embedding": np.ascontiguousarray(vector, "<f4").data,
            "tokens": sum(window.length for window in windows),
            "windows": len(decoded),
            "error": None,
            **cut_off(item),
        }

    def _finished(self, vector: Any, options: Any) -> Any:
        """Return the vector of a text from the pooled one."""
        if self.layers:
            vector = through(vector, self.layers, self.weights)
        if options.dimensions is None and options.normalize is None:
            # As the library does: a model's own `truncate_dim` comes last.
            return finish(vector, None, self.normalize)[: self.dimensions]
        normalize = self.normalize if options.normalize is None else options.normalize
        return finish(vector, options.dimensions or self.dimensions, normalize)
