"""What an input is made of: files as structures that can be mutated, written and made smaller, and commands on them."""

import gzip
import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tests.fuzz.damage import Damage

_RAW = re.compile(r'"\\u0000RAW(.*?)\\u0000"', re.DOTALL)


@dataclass(frozen=True)
class Raw:
    """Text that stands in JSON as it is: `1e999`, `-0`, two values with a comma between."""

    text: str


@dataclass
class Json:
    """A JSON document; `layout`: "kineto" (an event a line), "broken" (as torch.profiler breaks lines), "lines" (JSONL).

    Others: "compact", "indented", "spaced".
    """

    value: Any
    layout: str = "kineto"
    is_ascii: bool = True

    def encoded(self) -> bytes:
        if self.layout == "lines" and isinstance(self.value, list):
            text = "\n".join(self._text(item) for item in self.value) + "\n"
        elif self.layout in ("kineto", "broken") and isinstance(self.value, dict) and "traceEvents" in self.value:
            text = self._as_kineto(self.value)
        else:
            text = self._text(self.value)
        return text.encode("utf-8", "surrogatepass")

    def _text(self, value: Any, *, indent: int | None = None) -> str:
        compact = (",", ":") if self.layout == "compact" else None
        text = json.dumps(value, default=_raw, ensure_ascii=self.is_ascii, separators=compact)
        if "\\u0000RAW" in text:
            text = _RAW.sub(lambda match: json.loads(f'"{match[1]}"'), text)
        indent = 1 if self.layout == "indented" else indent
        with suppress(msgspec.MsgspecError, UnicodeEncodeError):  # what is no JSON stays on one line
            return msgspec.json.format(text, indent=indent) if indent else text
        return text

    def _as_kineto(self, top: dict[str, Any]) -> str:
        events = top["traceEvents"]
        if not isinstance(events, list):
            return self._text(top)
        head = "".join(
            f"    {self._text(key)}: {self._text(item)},\n" for key, item in top.items() if item is not events
        )
        indent = 4 if self.layout == "broken" else None
        joined = ",\n".join(f"  {self._text(event, indent=indent)}" for event in events)
        return f'{{\n{head}    "traceEvents": [\n{joined}\n  ]\n}}\n'


def _raw(value: Any) -> str:
    if isinstance(value, Raw):
        return f"\0RAW{value.text}\0"
    raise TypeError(value)


@dataclass
class Lines:
    """A text of lines: CSV, JSONL, what ncu printed."""

    lines: list[str]
    encoding: str = "utf-8"

    def encoded(self) -> bytes:
        return "\n".join(self.lines).encode(self.encoding, "surrogatepass" if self.encoding == "utf-8" else "replace")


@dataclass
class Sql:
    """An SQLite database as statements with their values; those that SQLite refuses are passed over.

    `wal` leaves the last statements in a write-ahead log beside the file.
    """

    statements: list[tuple[str, tuple[Any, ...]]]
    wal: int = 0

    def encoded(self) -> bytes:
        with sqlite3.connect(":memory:", isolation_level=None) as connection:
            _execute(connection, self.statements)
            try:
                data = connection.serialize()
            except sqlite3.OperationalError:  # nothing in it
                data = b""
        connection.close()
        return data

    def write(self, path: Path) -> None:
        """Write the file, and its log where there is one: only SQLite itself makes a true one."""
        connection = sqlite3.connect(path, isolation_level=None)
        kept, logged = self.statements[: -self.wal], self.statements[-self.wal :]
        connection.execute("PRAGMA journal_mode=WAL")
        _execute(connection, kept)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _execute(connection, logged)
        log = path.with_name(path.name + "-wal")
        data = (path.read_bytes(), log.read_bytes())
        connection.close()
        path.write_bytes(data[0])
        log.write_bytes(data[1])


def _execute(connection: sqlite3.Connection, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("BEGIN")
    for statement, values in statements:
        with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
            connection.execute(statement, values)
    with suppress(sqlite3.Error):
        connection.execute("COMMIT")


@dataclass
class Blob:
    """Bytes as they are."""

    data: bytes

    def encoded(self) -> bytes:
        return self.data


@dataclass
class Special:
    """No file: "fifo", "socket", "folder", or "link TARGET"."""

    what: str

    def encoded(self) -> bytes:
        return b""

    def write(self, path: Path) -> None:
        if self.what == "fifo":
            os.mkfifo(path)
        elif self.what == "folder":
            path.mkdir()
        elif self.what == "socket":
            with socket.socket(socket.AF_UNIX) as end, suppress(OSError):  # a path too long for one
                end.bind(str(path))
        else:
            path.symlink_to(self.what.removeprefix("link "))


Body = Json | Lines | Sql | Blob | Special


@dataclass
class File:
    """A body, how it is packed, and what damaged its bytes before (`inner`) and after (`outer`) packing."""

    body: Body
    packing: str = ""
    inner: list[Damage] = field(default_factory=list)
    outer: list[Damage] = field(default_factory=list)

    def data(self) -> bytes:
        data = self.body.encoded()
        for damage in self.inner:
            data = damage(data)
        data = PACKINGS[self.packing](data)
        for damage in self.outer:
            data = damage(data)
        return data

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self.body, Special) or (
            isinstance(self.body, Sql) and self.body.wal and not (self.inner or self.outer or self.packing)
        ):
            self.body.write(path)
        else:
            path.write_bytes(self.data())


def _members(data: bytes) -> bytes:
    third = len(data) // 3
    parts = (data[:third], data[third : 2 * third], data[2 * third :])
    return b"".join(gzip.compress(part, compresslevel=1, mtime=0) for part in parts)


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": lambda data: gzip.compress(data, compresslevel=1, mtime=0),
    "members": _members,
    "empty member": lambda data: gzip.compress(b"", mtime=0) + gzip.compress(data, compresslevel=1, mtime=0),
    "trailing": lambda data: gzip.compress(data, compresslevel=1, mtime=0) + b"\0" * 100,
    "twice": lambda data: gzip.compress(gzip.compress(data, compresslevel=1, mtime=0), mtime=0),
}
"""Ways to pack a file."""


@dataclass(frozen=True)
class Secret:
    """A marker that must not be printed, the form in which it was planted, and the texts that make it a secret."""

    marker: str
    form: str
    shape: tuple[str, ...] = ()

    def is_in(self, case: "Case") -> bool:
        """Whether the whole of it still stands in a file; the marker alone is none."""
        bodies = [_bare(file.body.encoded()) for file in case.files.values()]
        return any(all(_bare(text.encode()) in body for text in self.shape) for body in bodies)


def _bare(data: bytes) -> bytes:
    """Without quotes, and with no more space than keeps words apart: `--key X` is another text than `--keyX`."""
    words = re.sub(rb"\s+", b" ", re.sub(rb'[\\"\']+', b"", data))
    return re.sub(rb" ?([:,\[\]{}]) ?", rb"\1", words)


@dataclass
class Case:
    """One input: files by their paths in an empty folder, which is also where the commands run."""

    kind: str
    files: dict[str, File]
    commands: list[list[str]]
    secrets: list[Secret] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """What was done to it, in words."""

    def write(self, folder: Path) -> None:
        for name, file in self.files.items():
            file.write(folder / name)

    def but(self, **changes: Any) -> "Case":
        return replace(self, **changes)
