"""Running JavaScript: what a caller's own program makes of our answers, in a real engine."""

import json
import os
import shutil
import subprocess
from typing import Any

import pytest


def run_javascript(function: str, argument: Any) -> Any:
    """What a JavaScript function, given as source, returns for a JSON value. Needs Node.js: without it the test is
    skipped on a laptop and fails in CI.
    """
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        message = "Node.js is not installed, so what JavaScript makes of offsets was not tried"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    program = (
        "const text = require('fs').readFileSync(0, 'utf8');"
        f"process.stdout.write(JSON.stringify(({function})(JSON.parse(text))));"
    )
    done = subprocess.run([node, "-e", program], input=json.dumps(argument).encode(), capture_output=True, check=True)
    return json.loads(done.stdout)
