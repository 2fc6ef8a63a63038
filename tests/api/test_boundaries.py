"""What the API process must never carry, seen in a process of its own."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("api.app", ["torch", "transformers", "tokenizers", "corelane.engine.runner"]),
        ("corelane.client", ["torch", "redis", "celery", "fastapi", "numpy"]),
        ("workers.app", ["torch", "transformers", "tokenizers", "fastapi"]),
        ("corelane.cli.app", ["torch", "transformers", "celery", "fastapi"]),
    ],
)
def test_import_brings_nothing_heavy_along(module: str, absent: list[str]) -> None:
    code = f"import {module}, sys; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
