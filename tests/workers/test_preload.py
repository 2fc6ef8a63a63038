"""What the parent of a core's process imports for its children, in a process of its own."""

import subprocess
import sys

import orjson
import pytest

from corelane.engine.cores import cpu_slots
from corelane.settings import Settings

#: Imports as a worker's parent does; prints what is there then, and what a forked child computes.
PARENT = """
import json, os, sys
from workers.core.drain import preload
preload(sys.argv[1])
threads = len(os.listdir("/proc/self/task"))
told = {"torch": "torch" in sys.modules, "process": "workers.core.process" in sys.modules, "threads": threads}
if told["torch"]:
    from corelane.engine.runner import open_backend
    pid = os.fork()
    if not pid:
        open_backend("cpu").health()
        os._exit(7)
    told["child"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("cpu", {"torch": True, "process": True, "threads": 1, "child": 7}),
        ("inf2", {"torch": False, "process": True, "threads": 1}),
    ],
)
def test_parent_has_the_libraries_that_a_fork_may_inherit_and_no_threads(target: str, told: dict[str, object]) -> None:
    env = Settings().environment() | cpu_slots()[0].environment
    argv = [sys.executable, "-c", PARENT, target]
    done = subprocess.run(argv, env=env, check=True, capture_output=True)
    assert orjson.loads(done.stdout) == told
