"""Models that people load: their shape, and what their cards say. Figures were read on the cards in November 2026."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoint:
    """A model on the Hugging Face hub.

    ``shape`` names its architecture and size in the page's table of shapes. ``v1`` and ``v2`` are F1 on the development
    sets of SQuAD v1.1 and v2.0, 0 where the card gives none.
    """

    name: str
    shape: str
    v1: float
    v2: float
    licence: str
    language: str = "English"


CHECKPOINTS = (
    Checkpoint("deepset/minilm-uncased-squad2", "MiniLM-L12", 0, 79.5, "CC BY 4.0"),
    Checkpoint("deepset/tinybert-6l-768d-squad2", "TinyBERT-6L", 0, 77.2, "MIT"),
    Checkpoint("distilbert/distilbert-base-cased-distilled-squad", "DistilBERT", 87.1, 0, "Apache 2.0"),
    Checkpoint("deepset/tinyroberta-squad2", "DistilRoBERTa", 90.8, 82.0, "CC BY 4.0"),
    Checkpoint("deepset/electra-base-squad2", "ELECTRA-base", 0, 81.7, "CC BY 4.0"),
    Checkpoint("deepset/roberta-base-squad2", "RoBERTa-base", 0, 83.0, "CC BY 4.0"),
    Checkpoint("rankyx/ModernBERT-QnA-base-squad", "ModernBERT-base", 92.6, 0, "Apache 2.0"),
    Checkpoint("nlpconnect/deberta-v3-xsmall-squad2", "DeBERTa-v3-xsmall", 91.6, 0, "not seen"),
    Checkpoint("deepset/deberta-v3-base-squad2", "DeBERTa-v3-base", 92.3, 87.4, "CC BY 4.0"),
    Checkpoint("sjrhuschlee/deberta-v3-base-squad2", "DeBERTa-v3-base", 93.9, 88.7, "MIT"),
    Checkpoint("deepset/deberta-v3-large-squad2", "DeBERTa-v3-large", 0, 91.2, "CC BY 4.0"),
    Checkpoint("mrm8488/longformer-base-4096-finetuned-squadv2", "Longformer-base", 0, 83.3, "none given"),
    Checkpoint("deepset/xlm-roberta-base-squad2", "XLM-R-base", 0, 77.2, "CC BY 4.0", "100 languages"),
    Checkpoint("timpal0l/mdeberta-v3-base-squad2", "mDeBERTa-v3-base", 0, 84.0, "MIT", "94 languages"),
)
