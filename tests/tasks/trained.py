"""Tiny networks that are trained within seconds to tell what a text is about, or whether two are about the same."""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.tasks.tiny import save_tiny

#: Words that texts about each topic have.
TOPICS = {
    "travel": ("train", "ticket", "station", "journey", "luggage", "harbour"),
    "food": ("bread", "oven", "soup", "dinner", "spice", "bakery"),
    "music": ("orchestra", "conductor", "recording", "violin", "concert", "singer"),
}

#: The mean loss at which training ends.
ENOUGH = 0.05

#: A pair of texts, or one and None, and its label.
Pair = tuple[str, str | None, int]


def sentence(topic: str, chosen: random.Random) -> str:
    """Return a sentence about a topic."""
    one, two, three = chosen.sample(TOPICS[topic], 3)
    return chosen.choice((f"The {one} and the {two} near the {three}.", f"A {one} for {two} with {three} at nine."))


def draw_texts(chosen: random.Random, count: int = 48) -> list[Pair]:
    """Return texts alone, whose label is the number of their topic."""
    topics = chosen.choices(range(len(TOPICS)), k=count)
    return [(sentence(list(TOPICS)[topic], chosen), None, topic) for topic in topics]


def draw_pairs(chosen: random.Random, topic: str, label: int, *, topic_first: bool, count: int = 48) -> list[Pair]:
    """Return pairs of a ``topic``, with `{}` for its name, and a text: of ``label`` if it is about that, else of 0."""
    pairs: list[Pair] = []
    for _ in range(count):
        named, about = chosen.choices(sorted(TOPICS), k=2)
        about = named if chosen.random() < 1 / 3 else about
        asked, text = topic.replace("{}", named), sentence(about, chosen)
        first, second = (asked, text) if topic_first else (text, asked)
        pairs.append((first, second, label * (named == about)))
    return pairs


def train(folder: Path, draw: Callable[[random.Random], Sequence[Pair]], steps: int = 500, **config: Any) -> Path:
    """Save a tiny BERT that was trained on pairs until it knows them: on their labels, or on one logit for 1."""
    import torch
    import transformers

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    save_tiny("bert", "AutoModelForSequenceClassification", folder, larger=3.0, **sizes, **config)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).train()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    chosen = random.Random(11)
    single = config["num_labels"] == 1
    lately = deque([math.inf] * 10, maxlen=10)
    for _ in range(steps):
        first, second, labels = zip(*draw(chosen), strict=True)
        sides = [list(side) for side in (first, second) if side[0] is not None]
        given = tokenizer(*sides, padding=True, return_tensors="pt")
        logits = network(**given).logits
        if single:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], torch.tensor(labels).float())
        else:
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
        lately.append(loss.item())
        if sum(lately) < ENOUGH * len(lately):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval().save_pretrained(folder)
    return folder
