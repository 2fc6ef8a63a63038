"""Sample texts, written for Corelane, on which compiled models are compared with eager ones."""

from compile.tasks.question_answering.samples import (
    BAKERY,
    EVERYTHING,
    GLACIER,
    LIGHTHOUSE,
    ORCHESTRA,
    PROCESSOR,
    RIVER,
)

#: Short ones first: a word, a sentence, passages, and one that no bucket holds.
SAMPLES = (
    "Splendid!",
    "The parcel never came, and nobody called back.",
    "Der Zug nach Lyon fährt um 9:40 Uhr von Gleis 7.",
    LIGHTHOUSE[:90],
    BAKERY[:160],
    LIGHTHOUSE,
    BAKERY,
    RIVER,
    PROCESSOR,
    ORCHESTRA,
    GLACIER,
    EVERYTHING,
)
