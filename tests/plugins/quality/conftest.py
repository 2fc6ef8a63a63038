"""What tests of this plugin share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: tests share the machine, and threads that wait for each other take many times as long."""
    from compile.model.timing import one_thread

    with one_thread():
        yield
