"""Embed every paragraph of the passages by a batch of OpenAI's client, keep the vectors in sqlite-vec, and search them.

Take `pip install openai apsw sqlite-vec` and the address of a service that holds the model, in this folder:

    python vectors.py http://127.0.0.1:8000 "how to look after a household appliance"

apsw is SQLite as a package: the sqlite3 of many Pythons loads no extensions.
"""

import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import sqlite_vec
from openai import OpenAI

#: Vectors in base64 are float32 bytes, which is what sqlite-vec keeps.
ASKED = {"model": "all-minilm-l6-v2", "encoding_format": "base64"}

TABLE = "CREATE VIRTUAL TABLE parts USING vec0(vector float[384] distance_metric=cosine, +place TEXT, +text TEXT)"
NEAREST = "SELECT place, text, distance FROM parts WHERE vector MATCH ? AND k = 3"


def embed(client: OpenAI, texts: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the id of each text with its vector; exit with the errors if there are any."""
    lines = [
        {"custom_id": place, "method": "POST", "url": "/v1/embeddings", "body": ASKED | {"input": text}}
        for place, text in texts.items()
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("paragraphs.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.5)
        batch = client.batches.retrieve(batch.id)
    if batch.output_file_id is None or batch.error_file_id is not None:
        sys.exit(client.files.content(batch.error_file_id).text if batch.error_file_id else str(batch.errors))
    for line in client.files.content(batch.output_file_id).text.splitlines():
        outcome = json.loads(line)
        yield outcome["custom_id"], base64.b64decode(outcome["response"]["body"]["data"][0]["embedding"])


address, sought = sys.argv[1:]
texts = {
    f"{file.stem} {number}": paragraph
    for file in sorted(Path(__file__).parent.glob("passages/*.txt"))
    for number, paragraph in enumerate(file.read_text(encoding="utf-8").split("\n\n"))
}
store = apsw.Connection(":memory:")
store.enable_load_extension(True)
sqlite_vec.load(store)
store.execute(TABLE)
with OpenAI(base_url=f"{address}/v1", api_key="anything") as client:
    for place, vector in embed(client, texts):
        store.execute("INSERT INTO parts (vector, place, text) VALUES (?, ?, ?)", (vector, place, texts[place]))
    [asked] = client.embeddings.create(model=ASKED["model"], input=sought).data
for place, text, distance in store.execute(NEAREST, (sqlite_vec.serialize_float32(asked.embedding),)):
    print(f"{1 - distance:.2f} {place}: {text[:80]!r}")
