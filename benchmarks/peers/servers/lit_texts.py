"""LitServe for embeddings and classification, as its documentation has it: dynamic batching, one worker process a core.

https://lightning.ai/docs/litserve/features/batching. A request holds one text, or a list of texts.
"""

import os
from pathlib import Path
from typing import Any

import litserve

from benchmarks.peers.servers.given import given, tell_loaded
from benchmarks.peers.servers.lit import serve
from benchmarks.peers.vectors import TextModel

#: The variable that names the way of ``TextModel``.
WAY = "PEER_WAY"


class Texts(litserve.LitAPI):
    """Reads texts in batches that LitServe puts together."""

    def setup(self, device: str) -> None:  # noqa: ARG002  # LitServe names it
        """Load the model in a worker process."""
        self.model = TextModel(Path(given().artifact), Path(given().checkpoint), os.environ[WAY])
        for count in (1, given().batch, 1):
            self.model(["The little engine says: I think I can."] * count)
        tell_loaded()

    def decode_request(self, request: dict[str, Any]) -> list[str]:
        """Return the texts of a request."""
        return request["texts"] if "texts" in request else [request["text"]]

    def predict(self, requests: list[list[str]]) -> list[list[list[float]]]:
        """Read all texts of a batch in one pass."""
        found = iter(self.model([text for texts in requests for text in texts]))
        return [[next(found) for _ in texts] for texts in requests]

    def encode_response(self, found: list[list[float]]) -> dict[str, Any]:
        """Return the body of a response."""
        return {"data": found}


if __name__ == "__main__":
    serve(Texts)
