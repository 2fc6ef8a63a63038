"""Where a job comes from: the id of the request that brought it, and the trace it belongs to (W3C Trace Context).

Both are the caller's text, so both are read strictly: what has not their form is as if it had not been sent.
"""

import re
import secrets
from dataclasses import dataclass

#: A request id: what usual generators and proxies make, and nothing that could break a log line or a header.
REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")

#: version-trace-parent-flags, all hexadecimal in lower case; later versions may append more.
TRACEPARENT_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

#: The one version there is; what follows a later one is read as if it were this.
VERSION = "00"


@dataclass(frozen=True, slots=True)
class Origin:
    """A request id and a traceparent whose parent is this service; empty where there is none."""

    request_id: str = ""
    traceparent: str = ""

    def fields(self) -> dict[str, str]:
        """What is kept of it beside a job."""
        return {
            name: value for name, value in (("request_id", self.request_id), ("traceparent", self.traceparent)) if value
        }


#: Of what no request brought.
NOWHERE = Origin()


def new_request_id() -> str:
    """An id for a request that brought none."""
    return secrets.token_hex(16)


def read_request_id(text: str) -> str:
    """A caller's id if it can be taken as it is, else a fresh one."""
    return text if REQUEST_ID_FORM.fullmatch(text) else new_request_id()


def continue_trace(text: str) -> str:
    """The traceparent for what comes next: the same trace and flags, a fresh parent; empty if ``text`` is none."""
    match = TRACEPARENT_FORM.fullmatch(text)
    if match is None:
        return ""
    version, trace, parent, flags, more = match.groups()
    is_sound = version != "ff" and not (version == VERSION and more) and set(trace) != {"0"} and set(parent) != {"0"}
    return f"{VERSION}-{trace}-{secrets.token_hex(8)}-{flags}" if is_sound else ""


def trace_id(traceparent: str) -> str:
    """The trace that a sound traceparent names."""
    return traceparent[3:35]
