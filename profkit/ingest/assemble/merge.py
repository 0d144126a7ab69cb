"""All batches of a trace under one table of strings and one of threads; columns cleaned, sorted, coded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.allocator import return_free_memory
from profkit.ingest.assemble.raw import Batch, Columns
from profkit.ingest.assemble.rows import Rows
from profkit.ingest.numbers import within_range
from profkit.ingest.texts import LONGEST_LABEL, LONGEST_TEXT, MOST_TEXT, trimmed
from profkit.model.arrays import distinct_codes
from profkit.model.table import NO_ROW
from profkit.model.trace import Thread, TraceWarning


class Merged:
    """All batches under one string table and one thread table; columns are joined on demand, one table at a time."""

    def __init__(self, batches: list[Batch]) -> None:
        self.warnings: list[TraceWarning] = []
        short = _trimmed_strings(batches, self.warnings)
        # in order of text, not of first sight: ties are broken alike whatever the chunks, the layout or the processes
        self.strings = sorted({short.get(text, text) for batch in batches for text in batch.strings})
        codes = {text: code for code, text in enumerate(self.strings)}
        codes |= {text: codes[kept] for text, kept in short.items()}
        self.threads = sorted({_trimmed_thread(thread) for batch in batches for thread in batch.threads})
        threads = {thread: code for code, thread in enumerate(self.threads)}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.categories: dict[str, int] = {}
        self.signatures = sorted({text for batch in batches for text in batch.signatures})
        signature_codes = {text: code for code, text in enumerate(self.signatures)}
        self.n_events = 0
        self.n_kernels = 0
        self._parts: dict[str, list[Columns]] = {}
        for batch in batches:
            self.n_events += batch.n_events
            self.thread_names.update(
                (_trimmed_thread(thread), trimmed(name, LONGEST_LABEL)) for thread, name in batch.thread_names.items()
            )
            for given, count in batch.categories.items():
                category = trimmed(given, LONGEST_LABEL)
                self.categories[category] = self.categories.get(category, 0) + count
            string_of = _mapping(batch.strings, codes, NO_ROW)
            thread_of = _mapping([_trimmed_thread(thread) for thread in batch.threads], threads)
            signature_of = _mapping(batch.signatures, signature_codes, NO_ROW)
            n_kernels_before = self.n_kernels
            for table in list(batch.tables):
                columns = batch.tables.pop(table)  # what is coded anew is not kept twice
                if table == "kernels":
                    self.n_kernels += columns["start_ns"].size
                if table == "collectives":
                    columns["kernel"] = columns["kernel"] + n_kernels_before
                if "signature" in columns:
                    columns["signature"] = _linked(columns["signature"], signature_of)
                self._parts.setdefault(table, []).append(_recoded(columns, string_of, thread_of))

    def rows(self, *tables: str) -> Rows:
        """The rows of tables one behind the other, whose parts are forgotten here; none if the trace has none."""
        rows = Rows(self._in_range, partial(return_free_memory, self.n_events))
        for table in tables:
            rows.begin(WHAT.get(table, table))
            for part in self._parts.pop(table, ()):
                rows.add(part)
        return rows

    def take(self, table: str) -> Columns:
        """The columns of a table as read; {} if the trace has no such rows."""
        return self.rows(table).as_added()

    def _in_range(self, name: str, column: NDArray[Any]) -> NDArray[Any]:
        column, n_outside = within_range(name, column)
        if n_outside:
            said = f"{n_outside:,} values of {name} are impossible and count as missing"
            self.warnings.append(TraceWarning(id="args.range", message=said, count=n_outside))
        return column

    def thread_table(self) -> tuple[Thread, ...]:
        """The threads by code."""
        return tuple(Thread(pid=pid, tid=tid, name=self.thread_names.get((pid, tid), "")) for pid, tid in self.threads)


def _trimmed_strings(batches: list[Batch], warnings: list[TraceWarning]) -> dict[str, str]:
    """What each name becomes that is longer than a name can be, and say so."""
    texts = {text for batch in batches for text in batch.strings}
    n_characters = sum(map(len, texts))
    most = LONGEST_TEXT if n_characters <= MOST_TEXT else max(MOST_TEXT // len(texts), LONGEST_LABEL)
    short = {text: trimmed(text, most) for text in texts if len(text) > most}
    if short:
        longest = max(map(len, short))
        said = f"{len(short):,} names longer than {most:,} characters (the longest has {longest:,}) were cut"
        warnings.append(TraceWarning(id="names.cut", message=said, count=len(short)))
    return short


def _trimmed_thread(thread: tuple[str, str]) -> tuple[str, str]:
    pid, tid = thread
    return trimmed(pid, LONGEST_LABEL), trimmed(tid, LONGEST_LABEL)


def _mapping(values: list[Any], codes: dict[Any, int], *last: int) -> NDArray[np.int32]:
    return np.array([*(codes.setdefault(value, len(codes)) for value in values), *last], np.int32)


_STRING_COLUMNS: Final = {"name", "module", "caller", "collective", "dtype", "group_name", "group_ranks"}


def _recoded(columns: Columns, string_of: NDArray[np.int32], thread_of: NDArray[np.int32]) -> Columns:
    out: Columns = {}
    for name, column in columns.items():
        if name == "thread":
            out[name] = thread_of[column]
        elif name in _STRING_COLUMNS and column.size:
            out[name] = _linked(column, string_of)
        else:
            out[name] = column
    return out


def _linked(codes: NDArray[np.int32], code_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """The codes of the trace for those of a batch; the last of `code_of` is for -1."""
    return code_of[codes].astype(codes.dtype, copy=False)


WHAT: Final = {
    "kernels": "kernels",
    "copies": "copies",
    "mtia": "device rows",
    "ops": "operators",
    "calls": "runtime calls",
    "spans": "annotations",
    "python": "Python frames",
    "overhead": "overhead rows",
    "waits": "calls of the operating system",
    "device_spans": "device annotations",
    "sync_rows": "synchronisation rows",
    "memory": "memory events",
    "flows": "arrows",
    "samples": "CPU samples",
    "work": "counters of steps",
}


def code_table(codes: NDArray[Any], strings: tuple[str, ...], kind_of: Callable[[str], int]) -> NDArray[np.int8]:
    """`kind_of` per string code, computed once for each code that occurs."""
    table = np.zeros(len(strings) + 1, np.int8)  # the last is for "no string"
    for code in distinct_codes(codes):
        table[code] = kind_of(strings[code])
    return table
