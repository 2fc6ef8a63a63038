"""``python -m compile``: another name for ``corelane compile``.

The process replaces itself with that command. It cannot import the command line, which lies a floor above.
"""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "corelane", "compile", *sys.argv[1:]])  # noqa: S606
