"""The items of an input: its bytes unpacked, cut into lines and checked. Pure; each line is an item or an error, once.

A document (JSON) is read whole, so it is bounded as a request's body is. Lines are never held but one by one.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.contexts import Known, is_context_id, no_context
from corelane.domain.dispatch import Estimator, item_row
from corelane.domain.jobs import Item
from corelane.domain.wire import with_few_unknown
from corelane.errors import InputFailed, TooLarge, UnknownContext
from corelane.errors.sentences import place_of, sentence
from corelane.settings import Settings
from corelane.store.item_files import LineError, encode_error, encode_line
from corelane.submitting.batch_lines import no_such
from corelane.submitting.large_bodies import load
from corelane.submitting.lines import BYTE_ORDER_MARK, InputLine, LineCutter
from corelane.submitting.submitter import check_contexts, check_item

#: zlib's name for gzip's format.
GZIP = 16 + zlib.MAX_WBITS

#: Unpacked bytes that are held at a time: a chunk of a few kilobytes may unpack to gigabytes.
UNPACKED_BYTES = 1024 * 1024

#: Packed bytes that zlib gets at a time, and members of one input: those of bgzip hold 64 kB each.
PACKED_BYTES, MOST_MEMBERS = 8 * 1024, 100_000


def bounded(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Pass chunks on; raise InputFailed once they are more than allowed."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise InputFailed(f"the input has more than {most:,} bytes (CORELANE_MAX_INPUT_BYTES)")
        yield chunk


def unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip, which may have several members; raise InputFailed if it is damaged or ends too early."""
    unpacker, is_whole, members = zlib.decompressobj(GZIP), False, 1
    # zlib copies what it leaves over, for each member again: it gets little at a time.
    for chunk in (each[at : at + PACKED_BYTES] for each in chunks for at in range(0, len(each), PACKED_BYTES)):
        rest = chunk
        while rest:
            if unpacker.eof:
                unpacker, members = zlib.decompressobj(GZIP), members + 1
            if members > MOST_MEMBERS:
                raise InputFailed(f"the input's gzip has more than {MOST_MEMBERS:,} members: pack it as one")
            try:
                piece = unpacker.decompress(rest, UNPACKED_BYTES)
            except zlib.error as error:
                raise InputFailed(f"the input is not gzip, as its name says: {error}") from None
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            is_whole = unpacker.eof
            if piece:
                yield piece
    if not is_whole:
        raise InputFailed("the input ends in the middle of its gzip")


def cut(chunks: Iterable[bytes], start: int, number: int, most_bytes: int) -> Iterator[InputLine]:
    """Yield the lines that are not blank; a longer one is not held in memory.

    The first chunk begins at the offset ``start``, after so many lines.
    """
    cutter = LineCutter(most_bytes, start, number)
    for chunk in chunks:
        yield from cutter.feed(chunk)
    yield from cutter.finish()


class ItemChecker:
    """Checks the items of one job, in their order; the contexts that they share may come with the first line."""

    def __init__(
        self,
        settings: Settings,
        contexts: Mapping[str, str],
        doc_stride: int,
        find: Callable[[str], Known | None] = lambda _: None,
    ) -> None:
        """``find`` finds a stored context by its id, and has the job keep it."""
        self._settings = settings
        self._find = find
        self._known: dict[str, Known] = {}
        self._doc_stride = doc_stride
        self._share(contexts)

    def _share(self, contexts: Mapping[str, str]) -> None:
        self.contexts = dict(contexts)
        self._numbers = {name: number for number, name in enumerate(contexts)}
        self._estimator = Estimator(contexts, self._doc_stride, self._known)

    def take_head(self, value: Any) -> bool:
        """Take the contexts of a first line that is no item; return False if it is an item.

        Raise InputFailed if it has anything else: that belongs into the request.
        """
        if not isinstance(value, dict) or "question" in value or "contexts" not in value:
            return False
        if others := sorted(set(value) - {"contexts", "items"}):
            raise InputFailed(f"the input has {others[0][:64]!r} beside its items: put it into the request")
        contexts = value["contexts"]
        if self.contexts and contexts:
            raise InputFailed("the request has `contexts`, and so has the input: leave one of them out")
        if not isinstance(contexts, dict) or not all(
            isinstance(text, str) and text.strip() for text in contexts.values()
        ):
            raise InputFailed("the input's `contexts` must be an object of texts")
        try:
            check_contexts(self._settings, contexts)
        except TooLarge as error:
            raise InputFailed(error.detail) from None
        if contexts:
            self._share(contexts)
        return True

    def row(self, number: int, text: bytes | None) -> tuple[bytes, int]:
        """Return a line as it is kept, and its tokens."""
        if text is None:
            limit = self._settings.max_body_bytes
            return encode_error(
                None, (TooLarge.code, f"line {number} has more than {limit:,} bytes (CORELANE_MAX_BODY_BYTES)")
            ), 0
        try:
            value = load(text)
        except orjson.JSONDecodeError as error:
            return encode_error(None, ("invalid_input", f"line {number} is not JSON in UTF-8: {error.msg}")), 0
        except TooLarge as error:
            return encode_error(None, (error.code, f"line {number}: {error.detail}")), 0
        return self.value_row(f"line {number}", value)

    def value_row(self, where: str, value: Any) -> tuple[bytes, int]:
        """Return an item as it is kept, and its tokens."""
        found = self._check(where, value)
        if isinstance(found, Item):
            tokens = self._estimator.tokens(found)
            return encode_line(item_row(found, self._numbers), tokens), tokens
        item_id = value.get("id") if isinstance(value, dict) else None
        return encode_error(item_id if isinstance(item_id, str) and len(item_id) <= 256 else None, found), 0

    def _check(self, where: str, value: Any) -> Item | LineError:
        if not isinstance(value, dict):
            return "invalid_input", f"{where} is not a JSON object"
        try:
            item = Item.model_validate(with_few_unknown(Item, value))
            check_item(self._settings, where, item)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            at = place_of(first)
            return "invalid_input", f"{where}: {at + ': ' if at else ''}{sentence(first)}"
        except TooLarge as error:
            return error.code, error.detail
        if item.context_id is not None and item.context_id not in self._numbers:
            return self._with_stored(where, item, item.context_id)
        return item

    def _with_stored(self, where: str, item: Item, name: str) -> Item | LineError:
        """Return an item whose context must be a stored one, or its error."""
        if not is_context_id(name):
            return "invalid_input", f"{where}: {no_context(name)}"
        if name not in self._known:
            found = self._find(name)
            if found is None:
                return UnknownContext.code, f"{where}: {no_such(name)}"
            self._known[name] = found
        return item


def read_document(chunks: Iterable[bytes], most_bytes: int) -> Any:
    """Return a JSON document; raise InputFailed if it is none, or too large to be held."""
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > most_bytes:
            raise InputFailed(
                f"the document has more than {most_bytes:,} bytes (CORELANE_MAX_BODY_BYTES): send it as lines (NDJSON)"
            )
    try:
        return orjson.loads(bytes(found).removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"the input is not JSON in UTF-8, as its name says: {error.msg}") from None


def items_of(document: Any, checker: ItemChecker) -> list[Any]:
    """Return the items of a document: a list of them, or an object with ``items`` and perhaps ``contexts``."""
    if isinstance(document, dict) and "items" in document:
        if not checker.take_head({"contexts": {}} | document) or not isinstance(document["items"], list):
            raise InputFailed("`items` of the input must be a list")
        return document["items"]
    if not isinstance(document, list):
        raise InputFailed("the input must be a list of items, or an object with `items`")
    return document
