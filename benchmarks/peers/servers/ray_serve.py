"""Ray Serve, as its documentation has it: a deployment with one replica a core, dynamic batching, the batch computed
in a thread so that the event loop goes on, and the flags for throughput.

https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html,
https://docs.ray.io/en/latest/serve/advanced-guides/asyncio-best-practices.html (batching),
https://docs.ray.io/en/latest/serve/advanced-guides/performance.html (RAY_SERVE_THROUGHPUT_OPTIMIZED)
"""

import asyncio
import signal
from pathlib import Path
from threading import Event
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.peers.answering import Answerer, Pair
from benchmarks.peers.servers.given import given

MINE = given()

#: Bytes of the shared memory for objects; requests do not pass through it.
OBJECT_STORE_BYTES = 128 << 20


@serve.deployment(
    num_replicas=MINE.workers,
    # Enough for a batch at work and the next one waiting at each replica.
    max_ongoing_requests=max(64, 2 * MINE.batch),
    ray_actor_options={"num_cpus": 1},
)
class Answers:
    """Answers questions in batches that Ray Serve puts together."""

    def __init__(self) -> None:
        self.answerer = Answerer(Path(MINE.artifact))
        self.answerer.warm_up(MINE.batch)

    @serve.batch(max_batch_size=MINE.batch, batch_wait_timeout_s=MINE.wait_ms / 1000)
    async def answer(self, pairs: list[Pair]) -> list[dict[str, Any]]:
        """Answer a batch."""
        return [found._asdict() for found in await asyncio.to_thread(self.answerer.answer, pairs)]

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Answer a request."""
        body = await request.json()
        return await self.answer(Pair(body["question"], body["context"]))


def stay_on_loopback() -> None:
    """Have a replica open its port for other replicas on loopback; Ray 2.60 names all interfaces, without an option."""
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: add_port(server, address.replace("[::]", "127.0.0.1"))


def main() -> None:
    """Serve until a signal."""
    stop = Event()
    ray.init(
        num_cpus=MINE.workers,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        runtime_env={"worker_process_setup_hook": stay_on_loopback},
    )
    serve.start(http_options={"host": "127.0.0.1", "port": MINE.port})
    serve.run(Answers.bind(), route_prefix="/predict")  # type: ignore[attr-defined]
    # Ray sets handlers of its own when it starts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
