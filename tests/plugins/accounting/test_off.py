"""Without the plugin an endpoint for traces starts none."""

import os
import subprocess
import sys
from pathlib import Path

from tests.plugins.test_taken_off import without

ASK = """
from corelane.tracing import open_tracer
assert open_tracer("api", "one") is None
"""


def test_nothing_is_traced(tmp_path: Path) -> None:
    env = dict(os.environ) | {
        "PYTHONPATH": without(tmp_path, "accounting"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    }
    run = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
