"""Small tokenizers of the official classes: WordPiece, byte-level BPE and SentencePiece, trained on a few texts.

Each run makes the same vocabulary, so that a seeded network of it has the same logits.
"""

import functools
import inspect
import json
from typing import Any, Literal

from tests.families.texts import CORPUS

Kind = Literal["wordpiece", "bpe", "pieces", "unigram"]

#: Classes whose BPE is SentencePiece's: words begin with a mark and no bytes stand for letters.
PIECES_BPE = ("GemmaTokenizer", "LlamaTokenizer")

KINDS: dict[str, Kind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}

#: Pieces of a small vocabulary.
PIECES = 700

#: Decimals of a piece's score; those after them differ from run to run.
DIGITS = 2

#: The order in which special tokens begin a vocabulary; classes that want another say so by ``unk_id``.
ORDER = ("bos", "pad", "eos", "unk", "cls", "sep", "mask", "question")


def make_tokenizer(name: str, **options: Any) -> Any:
    """Return a tokenizer of a class of transformers, with a vocabulary trained on the spot."""
    import transformers

    kind = getattr(transformers, name)
    parameters = inspect.signature(kind.__init__).parameters
    special = {
        key: parameters[f"{key}_token"].default
        for key in ORDER
        if f"{key}_token" in parameters and isinstance(parameters[f"{key}_token"].default, str)
    }
    unknown = special.get("unk", "<unk>")
    names = list(dict.fromkeys([*special.values(), unknown]))
    model = KINDS[getattr(getattr(kind, "model", None), "__name__", "Unigram")]
    if name in PIECES_BPE:
        model = "pieces"
    if model == "unigram":
        wanted = parameters["unk_id"].default if "unk_id" in parameters else 3
        names.remove(unknown)
        names.insert(wanted, unknown)
    return kind(**train(model, tuple(names), unknown), **options)


@functools.cache
def train(kind: Kind, special: tuple[str, ...], unknown: str) -> dict[str, Any]:
    """Return a vocabulary as the classes of one kind take it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    settings: dict[str, Any] = {"vocab_size": PIECES, "special_tokens": list(special), "show_progress": False}
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        # The trainer numbers letters within words in the order of a hash table, except those that it is given.
        letters = sorted({f"##{letter}" for text in CORPUS for letter in tokenizer.normalizer.normalize_str(text)})
        settings["special_tokens"] += [letter for letter in letters if not letter[2:].isspace()]
        tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(**settings))
        return {"vocab": tokenizer.get_vocab()}
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(initial_alphabet=alphabet, **settings))
        model = json.loads(tokenizer.to_str())["model"]
        return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}
    if kind == "pieces":
        tokenizer = Tokenizer(models.BPE(unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(**settings))
        model = json.loads(tokenizer.to_str())["model"]
        return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(unk_token=unknown, **settings))
    pieces = [(piece, round(score, DIGITS)) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    first = len(special)
    return {"vocab": pieces[:first] + sorted(pieces[first:], key=lambda piece: (-piece[1], piece[0]))}
