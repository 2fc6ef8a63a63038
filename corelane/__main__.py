"""``python -m corelane``: the same as ``corelane``."""

from corelane.cli import main

main()
