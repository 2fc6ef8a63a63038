"""Running JavaScript: what a caller's own program makes of our answers, in a real engine."""

import json
from typing import Any

import quickjs


def run_javascript(function: str, argument: Any) -> Any:
    """Return the value that a JavaScript function, given as source, has for a JSON value."""
    context = quickjs.Context()
    context.set("text", json.dumps(argument))
    return json.loads(context.eval(f"JSON.stringify(({function})(JSON.parse(text)))"))
