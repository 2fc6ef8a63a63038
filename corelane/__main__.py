"""``python -m corelane``: the same as ``corelane``."""

from corelane.cli.app import main

main()
