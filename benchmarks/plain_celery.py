"""The baseline: one Celery task per item, with a result backend, as most people would do it."""

import os
import subprocess
import sys
import time

from celery import Celery

RESULT_DB = 1


def make_app(redis_url: str) -> Celery:
    """Return an app with one task that does nothing."""
    app = Celery("plain", broker=redis_url, backend=redis_url.rpartition("/")[0] + f"/{RESULT_DB}")
    app.conf.update(task_default_queue="plain", worker_hijack_root_logger=False)

    @app.task(name="plain.answer")
    def answer(question: str, context: str) -> dict[str, object]:
        return {"answer": None, "length": len(question) + len(context)}

    return app


def measure(redis_url: str, items: int) -> float:
    """Return the items a second from the first publish to the last result read, with a process a CPU."""
    cores = len(os.sched_getaffinity(0))
    code = (
        f"from benchmarks.plain_celery import make_app; make_app({redis_url!r}).worker_main(['worker','-c','{cores}'])"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        app = make_app(redis_url)
        task = app.tasks["plain.answer"]
        task.delay("warm", "up").get(timeout=60)
        began = time.perf_counter()
        pending = [task.delay("What is the number?", "The number is 7. " * 10) for _ in range(items)]
        for result in pending:
            result.get(timeout=120)
        return items / (time.perf_counter() - began)
    finally:
        worker.terminate()
        worker.wait(30)
