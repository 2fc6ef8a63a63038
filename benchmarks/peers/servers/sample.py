"""FastAPI and TorchScript in the manner of AWS' sample for Inferentia: one server a core, batches of one, texts cut off
after 128 tokens, padding to 128, no token types, start and end chosen apart, the pass in the way of the event loop, and
questions as query parameters of GET.

https://github.com/aws-samples/best-practices-for-fastapi-on-inferentia (a0957780, 2023-07-13):
fast-api/fastapi-server.py
"""

import json
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI
from tokenizers import Tokenizer

from benchmarks.peers.answering import load_network
from benchmarks.peers.servers.given import artifact_file, given, tell_loaded

LENGTH = 128

ARTIFACT = Path(given().artifact)

torch.set_num_threads(1)
manifest = json.loads((ARTIFACT / "manifest.json").read_text())
tokenizer = Tokenizer.from_file(str(ARTIFACT / "tokenizer.json"))
tokenizer.enable_truncation(min(LENGTH, manifest["max_length"]), strategy="longest_first")
tokenizer.enable_padding(length=min(LENGTH, manifest["max_length"]), pad_id=manifest["tokenizer"]["pad_id"])
network = load_network(artifact_file(given()))

app = FastAPI()


def answer(question: str, context: str) -> str:
    """Answer a question, as the sample does."""
    encoded = tokenizer.encode(question, context)
    ids = torch.tensor([encoded.ids], dtype=torch.int32)
    mask = torch.tensor([encoded.attention_mask], dtype=torch.int32)
    with torch.inference_mode():
        starts, ends = network(ids, mask, torch.zeros_like(ids))
    start, end = int(torch.argmax(starts)), int(torch.argmax(ends)) + 1
    return tokenizer.decode(encoded.ids[start:end] if end > start else encoded.ids[start:], skip_special_tokens=False)


@app.get("/")
async def healthy() -> dict[str, str]:
    """Say that the server is up."""
    return {"Status": "Healthy"}


@app.get("/predictions/model_0")
async def infer(seq_0: str, seq_1: str) -> dict[str, Any]:
    """Answer a request."""
    return {"text": answer(seq_0, seq_1)}


answer("What does the little engine say?", "In the story the little engine says: I think I can. " * 40)
tell_loaded()
