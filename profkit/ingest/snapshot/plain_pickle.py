"""Pickles of plain values: dicts, lists, tuples, texts, whole numbers, floats, flags, None. Nothing in a file runs.

A pickle is a program. `pickle.Unpickler` with a `find_class` that raises runs none of a file's code, but a file of a
few bytes can still make it reserve gigabytes (a long byte array, a high place in its memo) or hash a tuple of tuples
for years. So this reads the instructions one by one, those of plain values alone; every other one is refused by name.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, Final

MAGIC: Final = tuple(bytes((0x80, protocol)) for protocol in (2, 3, 4, 5))
"""How the pickles begin that are read here."""
MOST_INSTRUCTIONS: Final = 50_000_000
"""Chosen: a snapshot with 100,000 events and their stacks has 5 million; each makes 100 bytes of memory at most."""
_LONGEST_NUMBER: Final = 16  # bytes: addresses have 8
_NAMES: Final = {opcode.code.encode("latin-1")[0]: opcode.name for opcode in pickletools.opcodes}
_FLOAT: Final = struct.Struct(">d")


class NotPlainError(ValueError):
    """A pickle that is cut, damaged or holds something other than plain values."""


class _Machine:
    """The stack and the memo of a pickle that is being read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def take(self, n: int) -> bytes:
        """The next bytes; raises NotPlainError beyond the end."""
        end = self.at + n
        if end > len(self.data):
            raise NotPlainError("it ends too early")
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, n: int) -> int:
        """The next bytes as a number without sign."""
        return int.from_bytes(self.take(n), "little")

    def pop(self) -> Any:
        """The top of the stack above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise NotPlainError("it takes a value that it has not given")
        return self.stack.pop()

    def top(self, kind: type[Any]) -> Any:
        """The same, left where it is; raises NotPlainError if it is of another kind."""
        value = self.pop()
        if type(value) is not kind:
            raise NotPlainError(f"it fills a {type(value).__name__} as a {kind.__name__}")
        self.stack.append(value)
        return value

    def since_mark(self) -> list[Any]:
        """What lies above the last mark, taken off with it."""
        if not self.marks:
            raise NotPlainError("it ends a list that it has not begun")
        first = self.marks.pop()
        values = self.stack[first:]
        del self.stack[first:]
        return values


def _text(machine: _Machine, n: int) -> None:
    machine.stack.append(machine.take(machine.number(n)).decode("utf-8", "replace"))


def _long(machine: _Machine) -> None:
    n = machine.number(1)
    if n > _LONGEST_NUMBER:
        raise NotPlainError(f"it holds a number of {n} bytes")
    machine.stack.append(int.from_bytes(machine.take(n), "little", signed=True))


def _put(machine: _Machine, place: int) -> None:
    value = machine.pop()
    machine.stack.append(value)
    machine.memo[place] = value


def _get(machine: _Machine, place: int) -> None:
    if place not in machine.memo:
        raise NotPlainError("it names a value that it has not given")
    machine.stack.append(machine.memo[place])


def _set(machine: _Machine, pairs: list[Any]) -> None:
    target = machine.top(dict)
    if len(pairs) % 2:
        raise NotPlainError("a key has no value")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if (
            type(key) is str
        ):  # numbers and tuples can be chosen so that their hashes collide; no key that is read is one
            target[key] = value


def _tuple(machine: _Machine, n: int) -> None:
    values = [machine.pop() for _ in range(n)]
    machine.stack.append(tuple(reversed(values)))


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _extend(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.top(list).extend(values)


def _set_one(machine: _Machine) -> None:
    value = machine.pop()
    key = machine.pop()
    _set(machine, [key, value])


_DO: Final[dict[str, Callable[[_Machine], object]]] = {
    "PROTO": lambda machine: machine.take(1),
    "FRAME": lambda machine: machine.take(8),
    "MARK": lambda machine: machine.marks.append(len(machine.stack)),
    "NONE": lambda machine: machine.stack.append(None),
    "NEWTRUE": lambda machine: machine.stack.append(True),
    "NEWFALSE": lambda machine: machine.stack.append(False),
    "EMPTY_DICT": lambda machine: machine.stack.append({}),
    "EMPTY_LIST": lambda machine: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine: machine.stack.append(()),
    "BININT1": lambda machine: machine.stack.append(machine.number(1)),
    "BININT2": lambda machine: machine.stack.append(machine.number(2)),
    "BININT": lambda machine: machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True)),
    "LONG1": _long,
    "BINFLOAT": lambda machine: machine.stack.append(_FLOAT.unpack(machine.take(8))[0]),
    "SHORT_BINUNICODE": lambda machine: _text(machine, 1),
    "BINUNICODE": lambda machine: _text(machine, 4),
    "BINUNICODE8": lambda machine: _text(machine, 8),
    "TUPLE1": lambda machine: _tuple(machine, 1),
    "TUPLE2": lambda machine: _tuple(machine, 2),
    "TUPLE3": lambda machine: _tuple(machine, 3),
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.since_mark())),
    "APPEND": _append,
    "APPENDS": _extend,
    "SETITEM": _set_one,
    "SETITEMS": lambda machine: _set(machine, machine.since_mark()),
    "MEMOIZE": lambda machine: _put(machine, len(machine.memo)),
    "BINPUT": lambda machine: _put(machine, machine.number(1)),
    "LONG_BINPUT": lambda machine: _put(machine, machine.number(4)),
    "BINGET": lambda machine: _get(machine, machine.number(1)),
    "LONG_BINGET": lambda machine: _get(machine, machine.number(4)),
}


_BY_CODE: Final = {code: _DO[name] for code, name in _NAMES.items() if name in _DO}
_STOP: Final = ord(".")


def loads(data: bytes, *, most_instructions: int = MOST_INSTRUCTIONS) -> Any:
    """The value of a pickle of plain values; raises NotPlainError for anything else.

    A dict has only the keys that are texts. Values may share parts, and be parts of themselves.
    """
    machine = _Machine(data)
    for _ in range(most_instructions):
        if machine.at >= len(data):
            raise NotPlainError("it ends too early")
        code = data[machine.at]
        machine.at += 1
        if code == _STOP:
            return machine.pop()
        do = _BY_CODE.get(code)
        if do is None:
            raise NotPlainError(f"it holds more than plain values ({_NAMES.get(code, 'no pickle instruction')})")
        do(machine)
    raise NotPlainError(f"it has more than {most_instructions:,} instructions")
