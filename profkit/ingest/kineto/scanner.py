"""Batches by a scanner of events in C, for those who have it: the same as `batch` makes, some four times as fast.

It stands beneath `batch.decode_batch`, its only caller. In: the JSON text of an array of whole events, as
`split.pieces` cuts it. Out: a `Batch`, the same to the last bit, or None, which is the rule that it is built on: it
takes a batch only where it is certain of every byte (plain JSON in UTF-8, no key twice, whole numbers and decimals of
usual length, the categories and arguments of torch.profiler). Of anything else it declines, and Python reads the batch:
odd files, damaged ones and all errors are the same with it and without it.

Here is what the scanner (`profkit/native`) is told before, and its answer taken apart into columns. Of rows that few
batches have (collectives, embeddings, counters, names of threads) it gives the text back, for the functions of
`sparse_columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Batch, Columns
from profkit.ingest.kineto.arguments import CollectiveArgs, OperatorArgs, arguments
from profkit.ingest.kineto.columns import TABLE_OF_CATEGORY
from profkit.ingest.kineto.events import COMM_OP, COUNTED, EMBEDDING, LAUNCH_ARROWS, BadEventError, decode_events
from profkit.ingest.kineto.fields import Codes
from profkit.ingest.kineto.sparse_columns import (
    WITHOUT_WORK,
    add_work,
    counted_work,
    embeddings,
    kernel_collectives,
    operator_collectives,
    thread_names,
)
from profkit.ingest.kineto.stacks import has_stacks
from profkit.model.arrays import distinct
from profkit.native.library import NotUsedError, Scanner

TABLES: Final = (
    *("ops", "calls", "spans", "python", "overhead"),
    *("kernels", "copies", "device_spans", "sync_rows", "mtia", "memory", "flows"),
)
"""As `rows.h` numbers them."""
COLUMNS: Final = (
    *("start_ns", "end_ns", "name", "thread", "device", "grid", "block", "is_start", "signature"),
    *("external_id", "correlation", "stream", "n_bytes", "graph_node", "sequence", "forward_thread"),
    *("frame_id", "parent_id", "module_id"),
    *("address", "allocated_bytes", "reserved_bytes", "device_type", "device", "flow_id"),
)
"""As `rows.h` numbers them; the second device is that of memory, in 64 bits."""
REASONS: Final = (
    "taken",
    "is no plain JSON",
    "is not UTF-8",
    "holds what is no event",
    "has an escape in a key",
    "has a key twice",
    "has a member of another kind",
    "has an argument of another kind",
    "has a time of another kind",
    "has a device that is none",
    "is of an old version",
    "has too much of a kind",
    "takes more memory than there is",
)
"""Why a batch was left to Python, as `event.h` numbers it."""
_WITHOUT_WORK, _COLLECTIVE, _EMBEDDING = 1, 2, 4  # of names
_ARROWS, _FLOWS, _COUNTERS, _COMMON_OPS = 1, 2, 4, 8  # of categories
_COLLECTIVE_KERNEL, _COLLECTIVE_OPERATOR, _EMBEDDING_CALL, _THREAD_LABEL, _COUNTER = range(5)  # rare rows
_DTYPES: Final = {1: np.int8, 4: np.int32, 8: np.int64, 12: np.int32}
_N_SECTIONS: Final = 9
_ID_IS_NUMBER, _ID_IS_TEXT = 1, 2


class _Scanners(list[Scanner]):
    """Scanners that nobody uses now; `has_none`: there is no library, and nobody need ask again."""

    has_none = False


_IDLE: Final = _Scanners()


def decode(array: bytes | memoryview, *, unique_keys: bool) -> Batch | None:
    """The columns of a JSON array of whole events, None where Python must read it; see `batch.decode_batch`."""
    with _lent() as scanner:
        if scanner is None:
            return None
        block, _ = scanner.scan(array, unique_keys=unique_keys)
        if not block:
            return None
        try:
            return _batch(block, array)
        except BadEventError:  # one of the rare rows: which, is for the usual way to say
            return None


def scanned(array: bytes, *, unique_keys: bool) -> tuple[bytes, int]:
    """The block that the scanner makes of an array, or nothing and the place in `REASONS`; 0 where there is none."""
    with _lent() as scanner:
        if scanner is None:
            return b"", 0
        block, why = scanner.scan(array, unique_keys=unique_keys)
        return bytes(block), why


def is_used() -> bool:
    """Whether there is a scanner."""
    with _lent() as scanner:
        return scanner is not None


@contextmanager
def _lent() -> Iterator[Scanner | None]:
    """A scanner that no other thread has meanwhile, None where there is none."""
    scanner = _idle()
    try:
        yield scanner
    finally:
        if scanner is not None:
            _IDLE.append(scanner)


def _idle() -> Scanner | None:
    if _IDLE.has_none:
        return None
    with suppress(IndexError):
        return _IDLE.pop()
    try:
        return _taught()
    except NotUsedError:
        _IDLE.has_none = True
        return None


def _taught() -> Scanner:
    """A scanner that knows what categories and names mean; raises NotUsedError."""
    scanner = Scanner()
    flags = dict.fromkeys(LAUNCH_ARROWS, _ARROWS) | {"fwdbwd": _FLOWS, COUNTED[0]: _COUNTERS, "cpu_op": _COMMON_OPS}
    for category in {**flags, **TABLE_OF_CATEGORY}:
        table = TABLE_OF_CATEGORY.get(category, "")
        place = TABLES.index(table) if table else -1
        scanner.know(category, is_name=False, flags=flags.get(category, 0), table=place)
    for name in WITHOUT_WORK:
        scanner.know(name, is_name=True, flags=_WITHOUT_WORK)
    scanner.know(COMM_OP, is_name=True, flags=_COLLECTIVE)
    scanner.know(EMBEDDING, is_name=True, flags=_EMBEDDING)
    return scanner


class _Block:
    """The sections of a scanner's answer; `result.h` says what each holds."""

    def __init__(self, block: memoryview) -> None:
        self._block = block
        n_events, has_stacks, *places = np.frombuffer(block, np.int64, 2 + 2 * _N_SECTIONS).tolist()
        self.n_events: int = n_events
        self.has_stacks = bool(has_stacks)
        self._places: list[int] = places

    def numbers(self, section: int, width: int) -> NDArray[np.int64]:
        """The rows of a section of numbers, [n, width], in the block's memory."""
        at, n_bytes = self._places[2 * section : 2 * section + 2]
        return np.frombuffer(self._block, np.int64, n_bytes // 8, at).reshape(-1, width)

    def words(self, section: int, width: int) -> list[Any]:
        """The rows of a section of numbers."""
        found: list[Any] = self.numbers(section, width).tolist()
        return found

    def text(self, section: int) -> bytes:
        """A section of text."""
        at, n_bytes = self._places[2 * section : 2 * section + 2]
        return bytes(self._block[at : at + n_bytes])

    def texts(self, section: int) -> list[str]:
        """The texts of a section."""
        return self.text(section).decode().split("\0")[:-1]

    def columns(self, n_rows: dict[int, int]) -> Iterator[tuple[int, str, Any]]:
        """Table, name and values of each column, which are a copy: they live longer than the block."""
        for table, column, at, size in self.words(_COLUMNS, 4):
            n, width = n_rows[table], 3 if size == 12 else 1
            values = np.frombuffer(self._block, _DTYPES[size], n * width, at).copy()
            yield table, COLUMNS[column], values.reshape(n, 3) if width == 3 else values


_GROUPS, _TABLES, _COLUMNS, _THREADS, _RARES, _NAMES, _IDS, _LABELS, _SIGNATURES = range(_N_SECTIONS)


def _batch(block: memoryview, array: bytes | memoryview) -> Batch | None:
    """The batch of a block; None for one with stacks, which Python reads. Raises BadEventError."""
    found = _Block(block)
    if found.has_stacks and has_stacks(bytes(array)):
        return None
    batch = Batch(n_events=found.n_events, categories=_categories(found))
    n_rows = dict(found.words(_TABLES, 2))
    tables: dict[int, Columns] = {table: {} for table in n_rows}
    for table, name, values in found.columns(n_rows):
        tables[table][name] = values
    strings = Codes(zip(found.texts(_NAMES), range(len(array)), strict=False))
    rare = _rare_rows(found, array)
    for table, columns in tables.items():
        name = TABLES[table]
        if name == "copies":
            n = n_rows[table]
            columns |= {"grid": np.zeros((n, 3), np.int32), "block": np.zeros((n, 3), np.int32)}
        if name in {"kernels", "copies"}:
            columns["is_copy"] = np.full(n_rows[table], name == "copies")
        batch.tables[name] = columns
        if name == "kernels":
            _add_kernel_collectives(batch, rare, strings)
        elif name == "ops":
            _add_of_operators(batch, rare, strings)
    if counters := _rows(rare, _COUNTER):
        add_work(batch, counted_work({COUNTED: counters}, strings))
    batch.thread_names = thread_names({("", "M"): _rows(rare, _THREAD_LABEL)})
    batch.signatures = _signatures(found)
    batch.strings = list(strings)
    batch.threads = _threads(found)
    return batch


def _categories(found: _Block) -> dict[str, int]:
    labels = found.texts(_LABELS)
    counts: dict[str, int] = {}
    for cat, ph, (n_events,) in zip(labels[::2], labels[1::2], found.words(_GROUPS, 1), strict=True):
        counts[cat or ph] = counts.get(cat or ph, 0) + n_events
    return counts


def _threads(found: _Block) -> list[tuple[str, str]]:
    ids = found.texts(_IDS)

    def text(kind: int, number: int) -> str:
        return str(number) if kind == _ID_IS_NUMBER else ids[number] if kind == _ID_IS_TEXT else ""

    return [(text(*words[:2]), text(*words[2:])) for words in found.words(_THREADS, 4)]


def _signatures(found: _Block) -> list[tuple[bytes, ...]]:
    return [tuple(text.split(b"\0")) for text in found.text(_SIGNATURES).split(b"\1")[:-1]]


Rare = dict[int, tuple[Any, bytes]]
"""Kind -> the rows of that kind: places in their table, texts of the events as an array."""


def _rare_rows(found: _Block, array: bytes | memoryview) -> Rare:
    rows: Rare = {}
    words = found.numbers(_RARES, 4)
    for kind in distinct(words[:, 0]).tolist() if words.size else ():
        _, places, starts, sizes = words[words[:, 0] == kind].T
        texts = [array[at:end] for at, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
        rows[kind] = places.copy(), b"".join((b"[", b",".join(texts), b"]"))
    return rows


def _rows(rare: Rare, kind: int) -> list[Any]:
    """The events of a kind."""
    return decode_events(rare[kind][1]) if kind in rare else []


def _add_kernel_collectives(batch: Batch, rare: Rare, strings: Codes) -> None:
    rows = _rows(rare, _COLLECTIVE_KERNEL)
    said = [bool(args.collective) for args in arguments(rows, CollectiveArgs)]
    if any(said):
        places = rare[_COLLECTIVE_KERNEL][0][said].tolist()
        batch.tables["collectives"] = kernel_collectives(list(compress(rows, said)), places, strings)


def _add_of_operators(batch: Batch, rare: Rare, strings: Codes) -> None:
    if COMM_OP in strings:
        batch.tables["comm_ops"] = operator_collectives(_rows(rare, _COLLECTIVE_OPERATOR), strings)
    if EMBEDDING in strings:
        rows = _rows(rare, _EMBEDDING_CALL)
        add_work(batch, embeddings(rows, arguments(rows, OperatorArgs), strings))
