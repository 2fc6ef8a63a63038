"""Find out from a tokenizer how it joins a pair of texts.

The tokenizer joins a pair of texts and says for each token which text it is from. The tokens from neither are the
template. The token for "no answer" is that of training scripts (``run_qa``): [CLS], or else the first.
"""

from itertools import pairwise
from typing import Any

from compile.model.source import ModelSource
from corelane.artifacts.manifest import Template, TokenizerSpec
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import ModelRefused

#: A pair of texts whose encoding shows the template. The words do not matter.
PAIR = ("who", "someone")

#: Tokenizers that give token types under transformers 4 and none under 5, because the library's default for
#: ``model_input_names`` changed and these classes do not set it. The models in use were trained with token types.
LOST_TYPES = ("Albert", "RemBert", "XLNet", "Funnel", "Splinter")

#: Tokens and types of one part of a row.
Part = tuple[tuple[int, ...], tuple[int, ...]]


def read_template(source: ModelSource, fast: Any, config: Any) -> TokenizerSpec:
    """Return how a tokenizer puts rows together; raises ModelRefused with the reason if that is unclear."""
    label = source.label
    encoded = fast(*PAIR, return_token_type_ids=True)
    typed = uses_types(fast, config)
    types = encoded["token_type_ids"] if typed else [0] * len(encoded["input_ids"])
    before, first, between, second, after = _split(encoded.sequence_ids(0), encoded["input_ids"], types)
    alone = tuple(tuple(fast(text, add_special_tokens=False)["input_ids"]) for text in PAIR)
    if (first[0], second[0]) != alone or len({*first[1]}) != 1 or len({*second[1]}) != 1:
        raise ModelRefused(f"{label} puts two texts together in a way Corelane does not know")
    specials = before[0] + between[0] + after[0]
    if not specials and fast.cls_token_id is not None:
        raise ModelRefused(f"the tokenizer of {label} adds no {fast.cls_token}: save it with its post-processor")
    template = Template(
        before=before[0],
        between=between[0],
        after=after[0],
        before_types=before[1],
        question_type=first[1][0],
        between_types=between[1],
        context_type=second[1][0],
        after_types=after[1],
        null_last=_null_is_last(label, fast, encoded["input_ids"]),
    )
    spec = _shorten(template, 0 if fast.pad_token_id is None else int(fast.pad_token_id), typed)
    single = None if source.task == DEFAULT_TASK else _read_single(label, fast, typed)
    return spec if single in (None, spec.single_layout()) else spec.model_copy(update={"single": single})


def _read_single(label: str, fast: Any, typed: bool) -> Template:
    """Return the template of a row with one text alone."""
    encoded = fast(PAIR[0], return_token_type_ids=True)
    ids, sequences = encoded["input_ids"], encoded.sequence_ids(0)
    types = encoded["token_type_ids"] if typed else [0] * len(ids)
    first, last = sequences.index(0), len(sequences) - sequences[::-1].index(0)
    if tuple(ids[first:last]) != tuple(fast(PAIR[0], add_special_tokens=False)["input_ids"]):
        raise ModelRefused(f"{label} puts the tokens of a text together in a way Corelane does not know")
    return Template(
        before=tuple(ids[:first]),
        after=tuple(ids[last:]),
        before_types=tuple(types[:first]),
        question_type=types[first],
        after_types=tuple(types[last:]),
    )


def uses_types(fast: Any, config: Any) -> bool:
    """Return whether the model was trained with its tokenizer's token types."""
    if "token_type_ids" in fast.model_input_names:
        return True
    made_by = str(getattr(config, "transformers_version", None) or "4")
    return made_by.partition(".")[0] < "5" and type(fast).__name__.startswith(LOST_TYPES)


def _split(sequences: list[int | None], ids: list[int], types: list[int]) -> tuple[Part, Part, Part, Part, Part]:
    """Cut a joined pair into its five parts: before, first, between, second, after."""
    first, last = sequences.index(0), len(sequences) - sequences[::-1].index(0)
    start, end = sequences.index(1), len(sequences) - sequences[::-1].index(1)
    edges = (0, first, last, start, end, len(ids))
    parts = [(tuple(ids[here:there]), tuple(types[here:there])) for here, there in pairwise(edges)]
    return parts[0], parts[1], parts[2], parts[3], parts[4]


def _null_is_last(label: str, fast: Any, ids: list[int]) -> bool:
    """Return whether the token for "no answer" is the last; raises ModelRefused if it is in the middle."""
    at = ids.index(fast.cls_token_id) if fast.cls_token_id in ids else 0
    if at not in (0, len(ids) - 1):
        raise ModelRefused(f"{label} has its {fast.cls_token} in the middle of a row, and Corelane does not know that")
    return at != 0


def _shorten(template: Template, pad_id: int, typed: bool) -> TokenizerSpec:
    """Return the spec of BERT or RoBERTa if it has this template, or else a spec that holds the template itself."""
    cls_id, sep_id = (template.before or (pad_id,))[0], (template.after or (pad_id,))[0]
    count = min(max(len(template.between), 1), 2)
    short = TokenizerSpec(cls_id=cls_id, sep_id=sep_id, pad_id=pad_id, sep_count=count, uses_token_types=typed)
    for spec in (short, short.model_copy(update={"uses_token_types": False})):
        if spec.layout() == template:
            return spec
    return short.model_copy(update={"template": template})
