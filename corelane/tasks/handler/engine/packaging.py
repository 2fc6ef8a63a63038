"""The manifest of a handler: a version of a model without files of its own."""

import hashlib
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from typing import Any, cast

import orjson

from corelane import __version__
from corelane.artifacts.manifest import FINGERPRINT_CHARS, MODEL_NAME, Manifest, Target
from corelane.errors import ArtifactRefused
from corelane.tasks.handler.engine.source import IN_PLACE, digest_of, facts_of, import_handler, require_allowed
from corelane.tasks.handler.wire import HandlerOptions


def manifest_of(path: str, name: str, target: str, allowed: Sequence[str], *, in_place: bool = False) -> Manifest:
    """Import a handler and return its manifest; raises ArtifactRefused. The version follows from its code and forms."""
    if not MODEL_NAME.match(name):
        raise ArtifactRefused(f"{name!r} is no name of a model: small letters, digits, `.`, `_` and `-`")
    require_allowed(path, allowed)
    digest = digest_of(path)
    facts: dict[str, Any] = facts_of(path, digest, import_handler(path, digest, in_place=in_place))
    if in_place:
        facts[IN_PLACE] = True
    source = hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Manifest(
        schema_version=4,
        name=name,
        version=source[:FINGERPRINT_CHARS],
        task=HandlerOptions.task,
        source=path,
        source_digest=source,
        target=cast(Target, target),
        dtype="none",
        compiler="none",
        tools={"corelane": __version__, "python": platform.python_version(), **_holder(path)},
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        max_length=0,
        buckets=[],
        facts=facts,
        files={},
    )


def _holder(path: str) -> dict[str, str]:
    """Return the distribution that has a handler, with its version; empty if it is not installed as one."""
    names = packages_distributions().get(path.partition(":")[0].partition(".")[0], ())
    return {name: version(name) for name in names}
