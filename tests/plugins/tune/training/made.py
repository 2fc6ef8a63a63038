"""Questions made by rule about passages of few words, which a tiny random network can learn."""

import json
import random
from pathlib import Path
from typing import Any

PLACES = ("paris", "berlin", "東", "京", "byron", "ada", "lovelace", "red", "blue", "green")


def make_document(articles: int = 8, seed: int = 3) -> dict[str, Any]:
    """Return questions in SQuAD's layout; each fourth is unanswerable. A passage says where a tower is."""
    rng = random.Random(seed)
    data = []
    for number in range(articles):
        paragraphs: list[dict[str, Any]] = []
        for _ in range(4):
            place, color = rng.sample(PLACES, 2)
            context = f"the tower is in {place} . the night is {color} , and it {'was tall ' * rng.randint(0, 6)}."
            asked = [("where is the tower ?", place), ("the night is what ?", color), ("who wrote first ?", None)]
            qas = [
                {
                    "id": f"{seed}-{number}-{len(paragraphs)}-{at}",
                    "question": question,
                    "answers": [{"text": answer, "answer_start": context.index(answer)}] if answer else [],
                    "is_impossible": answer is None,
                }
                for at, (question, answer) in enumerate(asked)
            ]
            paragraphs.append({"context": context, "qas": qas})
        data.append({"title": f"article {number}", "paragraphs": paragraphs})
    return {"version": "v2.0", "data": data}


def write_document(path: Path, document: dict[str, Any]) -> Path:
    """Write a document with a line for each value, as people do who read their files."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    return path
