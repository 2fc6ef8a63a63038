"""Make tiny random models of other families than BERT."""

from pathlib import Path
from typing import Any

from tests.tools.artifacts import WORDS


def save_tiny_roberta(folder: Path) -> Path:
    """Save a random RoBERTa: byte-level tokens, two separators, no token types, positions from the padding id on."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForQuestionAnswering, set_seed

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    tokenizer = Tokenizer(BPE({name: number for number, name in enumerate(names)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        sep_token="</s>",
        pad_token="<pad>",
        cls_token="<s>",
        model_input_names=["input_ids", "attention_mask"],
    )
    set_seed(7)
    config = RobertaConfig(vocab_size=len(names), max_position_embeddings=66, type_vocab_size=1, **_sizes())
    RobertaForQuestionAnswering(config).eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_tiny_distilbert(folder: Path) -> Path:
    """Save a random DistilBERT, whose network takes no token types though its tokenizer makes them."""
    from transformers import DistilBertConfig, DistilBertForQuestionAnswering

    sizes = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 64}
    return _save(folder, DistilBertConfig, DistilBertForQuestionAnswering, **sizes)


def save_tiny(folder: Path, config: Any, network: Any, **options: Any) -> Path:
    """Save a random network of any family, with words as tokens and BERT's template."""
    return _save(folder, config, network, pad_token_id=0, **_sizes(), **options)


def _save(folder: Path, config: Any, network: Any, **options: Any) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast, set_seed

    names = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]))
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    set_seed(7)
    network(config(vocab_size=len(names), **options)).eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _sizes() -> dict[str, Any]:
    return {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
