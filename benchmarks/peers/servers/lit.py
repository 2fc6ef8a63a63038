"""LitServe, as its documentation recommends: a LitAPI with dynamic batching, one worker process a core.

https://lightning.ai/docs/litserve/features/batching, https://lightning.ai/docs/litserve/speed-up-serving-by-200x
"""

import sys
from pathlib import Path
from typing import Any

import litserve

from benchmarks.peers.answering import Answerer, Embedder, Found, Pair
from benchmarks.peers.servers.given import given


class Answers(litserve.LitAPI):
    """Answers questions in batches that LitServe puts together."""

    def setup(self, device: str) -> None:  # noqa: ARG002  # LitServe names it
        """Load the model in a worker process."""
        self.answerer = Answerer(Path(given().artifact))
        self.answerer.warm_up(given().batch)

    def decode_request(self, request: dict[str, str]) -> Pair:
        """Return the question of a request."""
        return Pair(request["question"], request["context"])

    def predict(self, pairs: list[Pair]) -> list[Found]:
        """Answer a batch."""
        return self.answerer.answer(pairs)

    def encode_response(self, found: Found) -> dict[str, Any]:
        """Return the body of a response."""
        return found._asdict()


class Vectors(litserve.LitAPI):
    """Makes vectors of lists of texts: of one list at a time, or of several that LitServe puts together."""

    def setup(self, device: str) -> None:  # noqa: ARG002  # LitServe names it
        """Load the model in a worker process."""
        self.embedder = Embedder(Path(given().artifact))
        self.embedder.warm_up()

    def decode_request(self, request: dict[str, list[str]]) -> list[str]:
        """Return the texts of a request."""
        return request["texts"]

    def predict(self, asked: Any) -> Any:
        """Make the vectors of a list, or those of each list of a batch."""
        if self.max_batch_size == 1:
            return self.embedder.embed(asked)
        vectors = iter(self.embedder.embed([text for texts in asked for text in texts]))
        return [[next(vectors) for _ in texts] for texts in asked]

    def encode_response(self, vectors: list[list[float]]) -> dict[str, Any]:
        """Return the body of a response."""
        return {"vectors": vectors}


def serve(kind: type[litserve.LitAPI]) -> None:
    """Serve until a signal."""
    mine = given()
    server = litserve.LitServer(
        kind(max_batch_size=mine.batch, batch_timeout=mine.wait_ms / 1000),
        accelerator="cpu",
        workers_per_device=mine.workers,
        timeout=60,
    )
    server.run(host="127.0.0.1", port=mine.port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    serve(Vectors if "texts" in sys.argv else Answers)
