"""Plain Celery and transformers: a task a question, a model in each process of the prefork pool, results in Redis.

https://docs.celeryq.dev/en/stable/userguide/optimizing.html (one task prefetched, as tasks are long),
https://docs.celeryq.dev/en/stable/userguide/signals.html#worker-process-init,
https://huggingface.co/docs/transformers/tasks/question_answering
"""

from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from benchmarks.peers.servers.given import given

MINE = given()

REDIS = f"redis://127.0.0.1:{MINE.port}"

app = Celery("peer", broker=REDIS, backend=REDIS)
app.conf.update(
    task_default_queue="peer",
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    result_expires=600,
    worker_hijack_root_logger=False,
    # Loading the model takes longer than the 4 s that Celery gives a process to start.
    worker_proc_alive_timeout=180,
    broker_connection_retry_on_startup=True,
)

loaded: dict[str, Any] = {}


@worker_process_init.connect
def load(**_: object) -> None:
    """Load the model in a process of the pool."""
    import torch
    from transformers import AutoModelForQuestionAnswering

    from benchmarks.peers.answering import Answerer, dtype_of

    artifact = Path(MINE.artifact)
    model = AutoModelForQuestionAnswering.from_pretrained(MINE.checkpoint, dtype=dtype_of(artifact)).eval()

    def network(ids: Any, mask: Any, types: Any) -> tuple[Any, Any]:
        output = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return output.start_logits, output.end_logits

    torch.set_num_threads(1)
    loaded["answerer"] = Answerer(artifact, network)
    loaded["answerer"].warm_up(1)


@app.task(name="peer.answer")
def answer(question: str, context: str) -> dict[str, Any]:
    """Answer a question."""
    from benchmarks.peers.answering import Pair

    return dict(loaded["answerer"].answer([Pair(question, context)])[0]._asdict())
