"""What is known of a request: its id, and the trace it belongs to (W3C's traceparent).

Both come from the caller, so both are read strictly: a malformed one counts as not sent.
"""

import re
import secrets
from dataclasses import dataclass

#: A request id as common generators and proxies make it. It can break neither a log line nor a header.
REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")

#: version-trace-parent-flags, all hexadecimal in lower case; later versions may append more.
TRACEPARENT_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

#: The only version so far; later versions are read as if they were this one.
VERSION = "00"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request id, and a traceparent whose parent is this service; empty if there is none."""

    request_id: str = ""
    traceparent: str = ""


#: The facts of a job that did not come by a request.
NO_REQUEST = RequestFacts()


def read_request_id(text: str) -> str:
    """Return a caller's id if it is well formed, else a new one."""
    return text if REQUEST_ID_FORM.fullmatch(text) else secrets.token_hex(16)


def continue_trace(text: str) -> str:
    """Return the traceparent of the next step: the same trace and flags, a new parent; empty for a malformed one."""
    match = TRACEPARENT_FORM.fullmatch(text)
    if match is None:
        return ""
    version, trace, parent, flags, more = match.groups()
    is_sound = version != "ff" and not (version == VERSION and more) and set(trace) != {"0"} and set(parent) != {"0"}
    return f"{VERSION}-{trace}-{secrets.token_hex(8)}-{flags}" if is_sound else ""


def trace_id(traceparent: str) -> str:
    """Return the trace id of a well-formed traceparent."""
    return traceparent[3:35]
