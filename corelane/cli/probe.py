"""``python -m corelane.cli.probe startup|ready|live FOLDER``: a container's health check, from signs of life.

It says the same as ``corelane health --startup`` in a twentieth of the time, because it reads no settings and imports
no library: a probe runs every few seconds on the CPU of the core it checks.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from corelane.metrics.liveness import HealthProbe, judge, read_liveness


def main(arguments: Sequence[str]) -> int:
    """Answer one health question: print what is wrong, if anything, and return the exit status."""
    try:
        question, folder = HealthProbe(arguments[0]), Path(arguments[1])
    except (ValueError, IndexError):
        sys.stderr.write("usage: python -m corelane.cli.probe startup|ready|live FOLDER\n")
        return 2
    fault = judge(question, read_liveness(folder), time.monotonic())
    if fault is not None:
        sys.stdout.write(f"{fault}\n")
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
