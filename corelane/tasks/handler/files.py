"""The files that a handler's items name: a field of the type ``FileUrl`` (``from corelane import FileUrl``).

This module needs pydantic alone, so that a package of handlers can be tested without a service.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

#: The format of such fields in a schema.
FILE_FORMAT = "file-url"

#: Most characters of a file's URL.
MOST_CHARS = 4096

Content = bytes


class FileUrl:
    """A file: named in an item by its URL, or as ``{"file_id": …}``, and fetched before ``predict``.

    A test may make one with the bytes that it is to have.
    """

    def __init__(self, name: str, fetched: Content | None = None, content_type: str = "") -> None:
        """``name`` is the URL, or the id of an uploaded file; ``content_type`` is empty if nothing says it."""
        self.name, self.fetched, self.content_type = name, fetched, content_type
        #: Why it could not be fetched, so that its batch does not try again in halves.
        self.fault: Exception | None = None

    @property
    def bytes(self) -> Content:
        """Return the file's bytes; raise RuntimeError before they are fetched, as in ``units``."""
        if self.fetched is None:
            raise RuntimeError("the file is not fetched: workers do this for the items of a batch, before `predict`")
        return self.fetched

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(min_length=1, max_length=MOST_CHARS)
        by_id = core_schema.typed_dict_schema({"file_id": core_schema.typed_dict_field(text)}, extra_behavior="forbid")
        said = 'a URL, or {"file_id": …}, is wanted'
        form = core_schema.union_schema([text, by_id], custom_error_type="file_url", custom_error_message=said)
        return core_schema.with_info_wrap_validator_function(cls._read, form)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"format": FILE_FORMAT}

    @classmethod
    def _read(cls, value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> "FileUrl":
        """Return the file, and add it to those of its item, which a worker gives as the context."""
        if isinstance(value, cls):
            return value
        named = validate(value)
        found = cls(named["file_id"] if isinstance(named, dict) else named)
        if isinstance(info.context, list):
            info.context.append(found)
        return found


def names_in(value: Any, schema: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the files in an item as JSON, by its schema; ``shared`` are the parts that it refers to."""
    schema = shared.get(str(schema.get("$ref")).rpartition("/")[2], schema)
    if schema.get("format") == FILE_FORMAT:
        if isinstance(name := value.get("file_id") if isinstance(value, dict) else value, str):
            yield name
        return
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from names_in(value, choice, shared)
    fields, other = schema.get("properties", {}), schema.get("additionalProperties")
    parts = [(each, fields.get(name, other)) for name, each in value.items()] if isinstance(value, dict) else []
    entries = [(each, schema.get("items")) for each in value] if isinstance(value, list) else []
    for each, form in parts + entries:
        if isinstance(form, dict):
            yield from names_in(each, form, shared)
