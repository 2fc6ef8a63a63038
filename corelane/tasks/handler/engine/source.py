"""Where a handler's code comes from: which may be imported, what it says of itself, and the digest of its files.

Nothing but what the operator named under ``CORELANE_HANDLERS`` is ever imported. The digest covers all files of the
handler's top package, or its one module. So a version is what was packaged, and no other code runs under its name.
"""

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from corelane.artifacts.manifest import digest_file
from corelane.errors import ArtifactRefused, RuntimeLost, first_line
from corelane.tasks.handler.interface import Handler
from corelane.tasks.handler.values import output_schema

#: A handler's name: its module and its class.
PATH = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")

#: The end of a name in the settings that allows all of a package.
ALL = ".*"

#: The digests of the top packages that this process imported handlers from.
_imported: dict[str, str] = {}


def require_allowed(path: str, allowed: Sequence[str]) -> None:
    """Raise ArtifactRefused unless the operator allowed this handler."""
    if not PATH.match(path):
        raise ArtifactRefused(f"{path[:200]!r} names no handler; names look like package.module:Class")
    module = path.partition(":")[0]
    for name in allowed:
        package = name.removesuffix(ALL)
        if name == path or (name.endswith(ALL) and f"{module}.".startswith(f"{package}.")):
            return
    raise ArtifactRefused(
        f"{path} may not be imported here: name it under CORELANE_HANDLERS where workers run; that names "
        f"{', '.join(allowed) or 'none'}"
    )


def digest_of(path: str) -> str:
    """Return the digest of the files that a handler comes with; raises ArtifactRefused if there are none."""
    top = path.partition(":")[0].partition(".")[0]
    importlib.invalidate_caches()
    try:
        # The loaded module's own, or one that is found without importing anything.
        spec = find_spec(top)
    except (ImportError, ValueError) as error:
        raise ArtifactRefused(f"{path} cannot be found: {error}") from None
    if spec is None:
        raise ArtifactRefused(f"{path} cannot be found: no package {top} is installed where this runs")
    digest = hashlib.sha256()
    for name, file in sorted(_files_of(spec)):
        digest.update(f"{name}\0{digest_file(file)}\n".encode())
    return digest.hexdigest()


def _files_of(spec: ModuleSpec) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package, or of a module, with their names in it."""
    for place in spec.submodule_search_locations or ():
        for file in Path(place).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(place).as_posix(), file
    if not spec.submodule_search_locations and spec.origin is not None and Path(spec.origin).is_file():
        yield Path(spec.origin).name, Path(spec.origin)


def import_handler(path: str, digest: str) -> type[Handler]:
    """Import a handler's class; raises ArtifactRefused with the reason if that fails.

    Raises RuntimeLost if this process imported another state of its package: only a new process imports this one.
    """
    module, _, name = path.partition(":")
    top = module.partition(".")[0]
    if _imported.setdefault(top, digest) != digest:
        raise RuntimeLost(f"the package of {path} has changed since this process imported it")
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        if top not in sys.modules:
            _imported.pop(top, None)
        raise ArtifactRefused(f"{path} does not import: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Handler)):
        raise ArtifactRefused(f"{path} is no subclass of corelane.Handler")
    return found


def facts_of(path: str, digest: str, handler: type[Handler]) -> dict[str, Any]:
    """Return what a version's manifest says of its handler; raises ArtifactRefused if its class is incomplete."""
    takes = _schema(path, handler, "Input", "validation")
    if takes is None or "id" in takes.get("properties", {}):
        raise ArtifactRefused(f"{path}: Input may have no field `id`, as every item has one of the caller's")
    if inspect.isgeneratorfunction(handler.predict):
        raise ArtifactRefused(f"{path}: predict yields its outputs: have it return a list with the output of each item")
    if handler.max_batch < 1:
        raise ArtifactRefused(f"{path}: max_batch is {handler.max_batch}, and must be at least 1")
    return {
        "handler": path,
        "digest": digest,
        "input_schema": takes,
        "output_schema": _schema(path, handler, "Output", "serialization"),
        "options_schema": None if handler.Options is None else _schema(path, handler, "Options", "validation"),
        "example": _example(handler.Input, takes),
        "max_batch": handler.max_batch,
        "max_batch_units": handler.max_batch_units,
        "timeout_s": handler.timeout_s,
    }


def _schema(path: str, handler: type[Handler], name: str, mode: Any) -> dict[str, Any] | None:
    form = getattr(handler, name, None)
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        raise ArtifactRefused(f"{path}: {name} must be a pydantic model, and is {form!r}")
    try:
        return output_schema(form) if name == "Output" else form.model_json_schema(mode=mode)
    except Exception as error:
        raise ArtifactRefused(f"{path}: {name} has no JSON schema: {first_line(error)}") from None


#: A value for an example, by its type in a schema.
VALUES = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}


def _example(form: type[BaseModel], schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return an item: an example that its form gives, or one of its required fields; None without a valid one."""
    properties = schema.get("properties", {})
    made = {name: _value(properties.get(name, {})) for name in schema.get("required", ())}
    for example in (*schema.get("examples", ()), made):
        try:
            form.model_validate(example)
        except ValueError:
            continue
        return dict(example)
    return None


def _value(schema: dict[str, Any]) -> Any:
    for given in (*schema.get("examples", ()), *schema.get("enum", ())):
        return given
    return VALUES.get(str(schema.get("type")))
