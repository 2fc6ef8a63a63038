"""What a service says, in the words of the command line: options and commands, not headers and requests. Pure."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from corelane.errors import CorelaneError, ServiceError

if TYPE_CHECKING:
    from pydantic import ValidationError

#: Commands that tell what a request would.
COMMANDS = {"cores": "`corelane cores`", "models": "`corelane models list`"}

#: What stands for an address, a header or a field of a request.
PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"send `?Authorization: Bearer(?: clk_…)?`?", "give --api-key, or set CORELANE_API_KEY"),
    (r"\(PUT /v1/aliases/NAME\)", "(`corelane models alias NAME VERSION`)"),
    (r"(?:give )?`?force=true`?", "give --force"),
    (r"`force` moves the alias now", "--force moves the alias now"),
    (r"`GET /v1/(cores|models)`|GET /v1/(cores|models)", lambda found: COMMANDS[found[1] or found[2]]),
    (r"POST /v1/cores/all/models", "--core all"),
    (r"send it as lines \(application/x-ndjson\)", "use `corelane batch`"),
)


def in_words(error: CorelaneError) -> str:
    """The sentence of an error, for somebody who types commands."""
    if not isinstance(error, ServiceError):
        return error.detail
    text = error.detail
    for pattern, words in PHRASES:
        text = re.sub(pattern, words, text)
    return text


#: What is wrong with a field, by pydantic's name of it; `{}` takes the limit.
FAULTS = {
    "missing": "is missing",
    "string_type": "must be text",
    "string_too_short": "is empty",
    "string_too_long": "is longer than {} characters",
}


def fault(error: "ValidationError") -> str:
    """Return the first thing that is wrong, in words: the field and what to change."""
    first = error.errors(include_url=False, include_input=False)[0]
    context = first.get("ctx") or {}
    known = FAULTS.get(first["type"])
    if known is not None:
        said = known.format(context.get("max_length", ""))
    else:
        said = str(context.get("error") or first["msg"])
    field = str(first["loc"][0]) if first["loc"] else "it"
    return f"{field} {said}"
