"""Find entities, and check that each is exactly where its offsets say, counted in three ways.

Take the address of a service, and a model for token classification that it holds (dslim/bert-base-NER, for instance):

    python tagging.py http://127.0.0.1:8000 bert-base-ner
"""

import sys

from corelane.client import Client

TEXTS = [
    "Zoë 👩‍🚀 landed in 東京 with Ada Lovelace 🎉",
    "昨日、山田さんは京都の国立博物館を訪れました 🏯。",
]


def cut(text: str, start: int, end: int, utf16: tuple[int, int], in_bytes: tuple[int, int]) -> set[str]:
    """Return what stands at offsets in code points, as Python counts, in UTF-16, as JavaScript, and in bytes."""
    units = text.encode("utf-16-le")[2 * utf16[0] : 2 * utf16[1]]
    return {text[start:end], units.decode("utf-16-le"), text.encode()[slice(*in_bytes)].decode()}


address, model = sys.argv[1:]
with Client(address) as client:
    for text, result in zip(TEXTS, client.entities(TEXTS, model=model, offsets=["utf16", "bytes"]), strict=True):
        if result.error is not None:
            sys.exit(result.error.detail)
        print(text)
        for entity in result.model_dump()["entities"]:
            start, end, offsets = entity["start"], entity["end"], entity["offsets"]
            if cut(text, start, end, offsets["utf16"], offsets["bytes"]) != {entity["text"]}:
                sys.exit(f"{entity} is not where it says")
            print(f"  {entity['label']} {entity['text']}: [{start}, {end}]", *offsets.items())
