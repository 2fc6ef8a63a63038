"""What a document of OpenAPI promises to callers, as JSON Schemas; jsoncompat says which of them another breaks.

What callers send must go on being taken (the role `deserializer`); what they get must go on being what they expect
(`serializer`), so a reply may gain a field, but no value of an enum.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from jsoncompat import check_compat

REF = re.compile(r"#/components/schemas/([\w.-]+)")


def broken(before: Any, now: Any) -> list[str]:
    """Return the places of a document that are gone from another, or no longer fit what they were."""
    kept = dict(promises(now))

    def is_kept(place: str, schema: str) -> bool:
        # The name of a webhook, which the service sends, has no slash.
        is_sent_by_us = " replies " in place or " /" not in place
        found = kept.get(place)
        role: Literal["serializer", "deserializer"] = "serializer" if is_sent_by_us else "deserializer"
        return found == schema or (found is not None and check_compat(schema, found, role))

    return [place for place, schema in promises(before) if not is_kept(place, schema)]


def promises(document: Any) -> Iterator[tuple[str, str]]:
    """Yield each place of a document, with its schema."""
    schemas = document["components"]["schemas"]
    for path, methods in (document["paths"] | document["webhooks"]).items():
        for method, operation in methods.items():
            place = f"{method.upper()} {path}"
            yield f"{place} parameters", whole(parameters(operation), schemas)
            parts = {f"replies {status}": reply for status, reply in operation["responses"].items()}
            for kind, part in {"takes": operation.get("requestBody", {}), **parts}.items():
                yield f"{place} {kind}", "{}"
                for media_type, content in part.get("content", {}).items():
                    yield f"{place} {kind} {media_type}", whole(content.get("schema", {}), schemas)


def parameters(operation: Any) -> dict[str, Any]:
    """Return the parameters of a request as one object, which has no others."""
    found = {f"{each['in']} {each['name'].lower()}": each for each in operation.get("parameters", ())}
    required = [name for name, each in found.items() if each.get("required")]
    properties = {name: each["schema"] for name, each in found.items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def whole(schema: Any, schemas: Any) -> str:
    """Return a schema as JSON with all that it refers to."""
    found, waiting = dict[str, Any](), [schema]
    while waiting:
        names = set(REF.findall(json.dumps(waiting.pop()))) - found.keys()
        found |= {name: schemas[name] for name in names}
        waiting += [schemas[name] for name in names]
    return REF.sub(r"#/$defs/\1", json.dumps({"$defs": found, **schema}, sort_keys=True))
