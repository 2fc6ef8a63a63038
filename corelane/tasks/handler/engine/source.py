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
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from corelane.artifacts.manifest import digest_file
from corelane.errors import ArtifactRefused, RuntimeLost, first_line
from corelane.log import get_logger
from corelane.tasks.handler.files import FILE_FORMAT
from corelane.tasks.handler.interface import Handler
from corelane.tasks.handler.values import output_schema

log = get_logger(__name__)

#: A handler's name: its module and its class.
PATH = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")

#: The end of a name in the settings that allows all of a package.
ALL = ".*"

#: The fact of a version that a process may import beside another state of its package: one that is being written.
IN_PLACE = "in_place"

#: Names of files that are no part of a package.
PASSING = re.compile(r"^__pycache__$|^\.|~$")

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


def look_here() -> None:
    """Import from the working folder too, as ``python -m`` does and the workers of `serve` do."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, "")


def name_of(path: str) -> str:
    """Return the name of a model for a class: that of ``shop.models:MyClass`` is ``my-class``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_+", "-", path.partition(":")[2]).lower().strip("-") or "handler"


def digest_of(path: str) -> str:
    """Return the digest of the files that a handler comes with; raises ArtifactRefused if there are none."""
    digest = hashlib.sha256()
    for name, file in sorted(files_of(path)):
        digest.update(f"{name}\0{digest_file(file)}\n".encode())
    return digest.hexdigest()


def files_of(path: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a handler's package, or its module, with their names in it; raises ArtifactRefused.

    Hidden files and those of editors are left out: they come and go.
    """
    top = path.partition(":")[0].partition(".")[0]
    importlib.invalidate_caches()
    try:
        # The loaded module's own, or one that is found without importing anything.
        spec = find_spec(top)
    except (ImportError, ValueError) as error:
        raise ArtifactRefused(f"{path} cannot be found: {error}") from None
    if spec is None:
        raise ArtifactRefused(f"{path} cannot be found: no package {top} is installed where this runs")
    for place in spec.submodule_search_locations or ():
        for file in Path(place).rglob("*"):
            name = file.relative_to(place)
            if file.is_file() and not any(PASSING.search(part) for part in name.parts):
                yield name.as_posix(), file
    if not spec.submodule_search_locations and spec.origin is not None and Path(spec.origin).is_file():
        yield Path(spec.origin).name, Path(spec.origin)


def import_handler(path: str, digest: str, *, in_place: bool) -> type[Handler]:
    """Import a handler's class; raises ArtifactRefused with the reason if that fails, and logs the traceback.

    Raises RuntimeLost if this process imported another state of its package: only a new process imports this one.
    ``in_place`` imports it beside the other, whose classes go on.
    """
    module, _, name = path.partition(":")
    top = module.partition(".")[0]
    earlier, before = _imported.get(top, digest), dict[str, ModuleType]()
    if in_place:
        # A cached module would hide a second save within a second.
        sys.dont_write_bytecode = True
    if earlier != digest:
        if not in_place:
            raise RuntimeLost(f"the package of {path} has changed since this process imported it")
        before = _put_away(top)
    _imported[top] = digest
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        log.warning("handler_failed", handler=path, call="import", error=type(error).__name__, exc_info=error)
        if before:
            _put_away(top)
            sys.modules.update(before)
            _imported[top] = earlier
        elif top not in sys.modules:
            _imported.pop(top)
        raise ArtifactRefused(f"{path} does not import: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Handler)):
        raise ArtifactRefused(f"{path} is no subclass of corelane.Handler")
    return found


def _put_away(top: str) -> dict[str, ModuleType]:
    """Take a package's modules out of those that Python has imported, and return them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == top}


def facts_of(path: str, digest: str, handler: type[Handler]) -> dict[str, Any]:
    """Return what a version's manifest says of its handler; raises ArtifactRefused if its class is incomplete."""
    takes = _schema(path, handler, "Input", "validation")
    if takes is None or "id" in takes.get("properties", {}):
        raise ArtifactRefused(f"{path}: Input may have no field `id`, as every item has one of the caller's")
    if handler.predict is Handler.predict:
        raise ArtifactRefused(f"{path} has no predict: give it one that returns a list with the output of each item")
    if inspect.isgeneratorfunction(handler.predict):
        raise ArtifactRefused(f"{path}: predict yields its outputs: have it return a list with the output of each item")
    if handler.max_batch < 1:
        raise ArtifactRefused(f"{path}: max_batch is {handler.max_batch}, and must be at least 1")
    if handler.max_memory_mb is not None and handler.max_memory_mb <= 0:
        raise ArtifactRefused(f"{path}: max_memory_mb is {handler.max_memory_mb}, and must be above 0, or None")
    return {
        "handler": path,
        "digest": digest,
        "input_schema": takes,
        "output_schema": _schema(path, handler, "Output", "serialization"),
        "options_schema": None if handler.Options is None else _schema(path, handler, "Options", "validation"),
        "example": _example(handler.Input, takes),
        "max_batch": handler.max_batch,
        "max_batch_units": handler.max_batch_units,
        "max_item_bytes": handler.max_item_bytes,
        "timeout_s": handler.timeout_s,
        "max_memory_mb": handler.max_memory_mb,
    }


def _schema(path: str, handler: type[Handler], name: str, mode: Any) -> dict[str, Any] | None:
    form = getattr(handler, name, None)
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        raise ArtifactRefused(f"{path}: {name} must be a pydantic model, and is {form!r}")
    try:
        return output_schema(form) if name == "Output" else form.model_json_schema(mode=mode)
    except Exception as error:
        raise ArtifactRefused(f"{path}: {name} has no JSON schema: {first_line(error)}") from None


#: A value for an example, by its type in a schema, or its format.
VALUES = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
VALUES |= {FILE_FORMAT: "https://example.com/a.png"}


def _example(form: type[BaseModel], schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return an item: an example that its form gives, or one of its required fields; None without a valid one."""
    properties = schema.get("properties", {})
    made = {name: _value(properties.get(name, {})) for name in schema.get("required", ())}
    for example in (*own_examples(schema), made):
        try:
            form.model_validate(example)
        except ValueError:
            continue
        return dict(example)
    return None


def own_examples(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the examples that a form gives: of an item, or else of each required field."""
    yield from schema.get("examples", ())
    properties = schema.get("properties", {})
    fields = {name: _given(properties.get(name, {})) for name in schema.get("required", ())}
    if fields and all(fields.values()):
        yield {name: given[0] for name, given in fields.items()}


def _given(schema: dict[str, Any]) -> list[Any]:
    return [*schema.get("examples", ()), *schema.get("enum", ())]


def _value(schema: dict[str, Any]) -> Any:
    return next(iter(_given(schema)), VALUES.get(str(schema.get("type", schema.get("format")))))
