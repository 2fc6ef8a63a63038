"""The baseline: one Celery task per item, with a result backend, as most people would do it."""

import os
import subprocess
import sys
import time

from celery import Celery

from benchmarks.harness import ROOT

RESULT_DB = 1

TASK = "plain.answer"


def make_app(redis_url: str) -> Celery:
    """Return an app on this Redis."""
    app = Celery("plain", broker=redis_url, backend=redis_url.rpartition("/")[0] + f"/{RESULT_DB}")
    app.conf.update(task_default_queue="plain", worker_hijack_root_logger=False)
    return app


def answer(question: str, context: str) -> dict[str, object]:
    """Do nothing."""
    return {"answer": None, "length": len(question) + len(context)}


def run_worker(redis_url: str, processes: int) -> None:
    """Be the worker until a signal."""
    app = make_app(redis_url)
    app.task(name=TASK)(answer)
    app.worker_main(["worker", "-c", str(processes)])


def measure(redis_url: str, items: int) -> float:
    """Return the items a second from the first publish to the last result read, with a process a CPU."""
    processes = len(os.sched_getaffinity(0))
    code = f"from benchmarks.plain_celery import run_worker; run_worker({redis_url!r}, {processes})"
    worker = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        app = make_app(redis_url)
        app.send_task(TASK, ("warm", "up")).get(timeout=60)
        began = time.perf_counter()
        pending = [app.send_task(TASK, ("What is the number?", "The number is 7. " * 10)) for _ in range(items)]
        for result in pending:
            result.get(timeout=120)
        return items / (time.perf_counter() - began)
    finally:
        worker.terminate()
        worker.wait(30)
