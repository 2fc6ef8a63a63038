"""``python -m compile``: another name for ``corelane compile``.

The process replaces itself with that command, because this package may not import the command line.
"""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "corelane", "compile", *sys.argv[1:]])  # noqa: S606
