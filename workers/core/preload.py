"""The libraries of a core's process, imported once in its parent: each child is a fork that has them.

Importing takes 1.5 s of CPU, more than loading the built-in model; a child that replaces a killed one saves that time.
The parent runs no code of torch, so it has no threads that a fork would lose. Libraries of an accelerator read their
device when they are imported, so each child imports those itself.
"""

import gc


def preload(target: str) -> None:
    """Import what a core of this target runs, if a fork can inherit it."""
    import workers.core.drain
    import workers.core.process  # noqa: F401  # for the child

    if target == "cpu":
        import corelane.engine.backends.cpu  # noqa: F401  # torch, for the child
    # A garbage collection in a child would write to all pages that it shares with its parent.
    gc.freeze()
