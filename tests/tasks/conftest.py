"""What the tests of tasks share."""

from collections.abc import Iterator

import pytest

from compile.model.loading import quiet_transformers
from compile.model.timing import one_thread


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold torch to one thread, and try no tokenizer in a process of its own: that takes longer than all else here."""
    monkeypatch.setattr("corelane.engine.text.tokenizer._fault", lambda *_: None)
    with quiet_transformers(), one_thread():
        yield
