"""Check the Lua library as a real Lua 5.1 compiler sees it: its names and the length of its functions. `make check`.

The server compiles the library only when it loads it, and finds a misspelt name only when a call comes that far. Here
every instruction that reads or writes a global is read from the bytecode, wherever it stands. So are the names of
locals: at the top of the library there is room for 200, and none may hide the table of an area.
"""

import struct
import sys
from collections.abc import Iterator
from typing import Any

from lupa import lua51

from corelane.store.link.library import AREAS, read_library

#: What Redis and Valkey give a function: https://redis.io/docs/latest/develop/programmability/lua-api/
GIVEN = frozenset(
    ("redis", "cjson", "math", "string", "table", "ipairs", "pairs", "next", "tonumber", "tostring", "unpack")
)

#: Names that Lua 5.1 has room for in one function (LUAI_MAXVARS), and how much of that stays free at the library's top.
MOST_LOCALS, FREE_LOCALS = 200, 60

#: Most lines of a function, as of one in Python.
MOST_LINES = 60

#: Opcodes of Lua 5.1 (lopcodes.h).
GET_GLOBAL, SET_GLOBAL = 5, 7

#: How the constants of a chunk are stored (ldump.c): nil, booleans, numbers, texts.
NIL, BOOLEAN, NUMBER, TEXT = 0, 1, 3, 4


class Bytecode:
    """A compiled chunk, read from its beginning; see ``ldump.c`` of Lua 5.1."""

    def __init__(self, dump: bytes) -> None:
        self._dump = dump
        # Signature, version and format; then byte order and the sizes of int, size_t, instruction and number.
        self._at = 12
        if dump[:6] != b"\x1bLua\x51\x00" or dump[6:12] != bytes((1, 4, 8, 4, 8, 0)):
            raise ValueError("this is no bytecode of Lua 5.1 on a little-endian 64-bit machine")
        #: The names of the locals of each function and where they live, by its first line; 0 is the library itself.
        self.locals: dict[int, list[tuple[str, int, int]]] = {}
        #: The first and last line of each function; those of the library itself are 0.
        self.functions: list[tuple[int, int]] = []

    def globals(self) -> Iterator[tuple[int, str, bool]]:
        """Yield each use of a global in a function and those inside it: line, name, whether it is written."""
        self._text()
        first, last = self._int(), self._int()
        self.functions.append((first, last))
        self._at += 4  # Upvalues, parameters, varargs, registers.
        code = [self._int() for _ in range(self._int())]
        constants = [self._constant() for _ in range(self._int())]
        for _ in range(self._int()):
            yield from self.globals()
        lines = [self._int() for _ in range(self._int())]
        found = [(self._text(), self._int(), self._int()) for _ in range(self._int())]
        self.locals.setdefault(first, []).extend(found)
        for _ in range(self._int()):
            self._text()
        for line, instruction in zip(lines, code, strict=True):
            if instruction & 0x3F in (GET_GLOBAL, SET_GLOBAL):
                yield line, constants[instruction >> 14], instruction & 0x3F == SET_GLOBAL

    def _constant(self) -> str:
        kind = self._take("B")
        if kind == TEXT:
            return self._text()
        return str(self._take({NIL: "0s", BOOLEAN: "B", NUMBER: "d"}[kind]))

    def _text(self) -> str:
        size = self._take("Q")
        return self._take(f"{size}s")[:-1].decode() if size else ""

    def _int(self) -> int:
        return self._take("I")

    def _take(self, form: str) -> Any:
        [value] = struct.unpack_from(f"<{form}", self._dump, self._at)
        self._at += struct.calcsize(f"<{form}")
        return value


def problems(code: str) -> list[str]:
    """List what is wrong with code: that it does not compile, and names that it should not use."""
    compile_ = b"function(code) local f, e = loadstring(code, '=library') return f and string.dump(f), e end"
    loaded, error = lua51.LuaRuntime(encoding=None).eval(compile_)(code.encode())
    if loaded is None:
        return [error.decode()]
    bytecode = Bytecode(loaded)
    found = sorted(bytecode.globals())
    told = [
        f"library:{line}: {'sets' if written else 'reads'} global {name!r}: {code.splitlines()[line - 1].strip()}"
        for line, name, written in found
        if written or name not in GIVEN
    ]
    top = bytecode.locals.pop(0)
    most = max(sum(begin <= at < end for _, begin, end in top) for _, at, _ in top) if top else 0
    if most > MOST_LOCALS - FREE_LOCALS:
        told.append(f"library: {most} names at its top, of which Lua has room for {MOST_LOCALS}: put some into areas")
    for line, name in ((line, name) for line, its in bytecode.locals.items() for name, *_ in its if name in AREAS):
        told.append(f"library:{line}: a function has a {name!r}, which hides that area")
    for first, lines in ((first, last - first + 1) for first, last in bytecode.functions):
        if lines > MOST_LINES:
            told.append(f"library:{first}: a function of {lines} lines: {code.splitlines()[first - 1].strip()}")
    return told


if __name__ == "__main__":
    # The first line names the library for Redis; it is no Lua.
    told = problems("--" + read_library().text)
    print("\n".join(told) or "The Lua library compiles and uses no global but those of Redis.")  # noqa: T201
    sys.exit(bool(told))
