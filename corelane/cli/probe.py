"""``python -m corelane.cli.probe startup|ready|live FOLDER``: a container's health check, from signs of life.

It reports what ``corelane health --startup`` reports, in a twentieth of the time: it reads no settings and imports no
library, as a probe runs every few seconds on the CPU of the core it checks.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from corelane.metrics.liveness import HealthProbe, judge, read_liveness


def main(arguments: Sequence[str]) -> int:
    """Run one health probe: print what is wrong, if anything, and return the exit status."""
    try:
        probe, folder = HealthProbe(arguments[0]), Path(arguments[1])
    except (ValueError, IndexError):
        sys.stderr.write("usage: python -m corelane.cli.probe startup|ready|live FOLDER\n")
        return 2
    fault = judge(probe, read_liveness(folder), time.monotonic())
    if fault is not None:
        sys.stdout.write(f"{fault}\n")
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
