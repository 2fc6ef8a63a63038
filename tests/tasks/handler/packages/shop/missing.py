"""A module whose library is not installed."""

import no_such_library  # type: ignore[import-not-found]  # noqa: F401

from corelane import Handler


class Lost(Handler):
    pass
