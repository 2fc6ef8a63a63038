"""Marks: what was done to the service, written where the history of the console shows it."""

from typing import Literal

from corelane.store.link.link import CommonLink

#: A deployment, a moved alias, a version that is wanted or no longer wanted, a core out of service or back, new
#: calibration, a core that an autoscaler started or stopped.
MarkKind = Literal["deploy", "alias", "load", "unload", "core", "calibration", "scale", "pause"]


async def write_mark(link: CommonLink, kind: MarkKind, text: str) -> None:
    """Note that something was done to the service. Lua does so itself where that is one step with what is done."""
    await link.run("mark", kind=kind, text=text)
