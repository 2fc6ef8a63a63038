import subprocess
import sys
import threading
from pathlib import Path

from corelane.artifacts.locks import compiling, wait_for_compiler

HOLD = """
import sys
from pathlib import Path
from corelane.artifacts.locks import compiling
with compiling(Path(sys.argv[1])) as waits:
    print(waits, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_waited_for_where_nothing_compiles(tmp_path: Path) -> None:
    wait_for_compiler(tmp_path)
    wait_for_compiler(tmp_path / "absent")
    with compiling(tmp_path) as waits:
        assert waits
    wait_for_compiler(tmp_path)
    with compiling(tmp_path / "absent") as waits:
        assert not waits


def test_worker_waits_until_the_compiler_is_done_or_dead(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with compiling(tmp_path) as waits:
            assert not waits
        waiter = threading.Thread(target=wait_for_compiler, args=(tmp_path,), daemon=True)
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
        holder.kill()
        waiter.join(60)
        assert not waiter.is_alive()
