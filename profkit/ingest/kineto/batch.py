"""One batch of events as columns: a pure function, so that any process can do it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from profkit.ingest.assemble.raw import Batch
from profkit.ingest.kineto import scanner
from profkit.ingest.kineto.arguments import StackArgs, arguments, refuse_odd_arguments
from profkit.ingest.kineto.columns import EXTRACTORS, rows_by_table, shared_columns
from profkit.ingest.kineto.events import (
    AS_TEXT,
    COMM_OP,
    EMBEDDING,
    BadEventError,
    Event,
    decode_events,
    grouped,
    quick_decoder,
    refuse_repeated_keys,
)
from profkit.ingest.kineto.fields import Codes, InexactError, text_of, threads_of
from profkit.ingest.kineto.sparse_columns import (
    add_work,
    counted_work,
    embeddings,
    flows,
    kernel_collectives,
    operator_collectives,
    signatures,
    thread_names,
)
from profkit.ingest.kineto.stacks import has_stacks, stack_frames


def decode_batch(array: bytes | memoryview, *, unique_keys: bool = False) -> Batch:
    """The columns of a JSON array of whole events; raises BadEventError.

    `unique_keys` also refuses an event in which a key stands twice; otherwise the last one counts, as in any reader.
    Nothing of the batch lies in the array's memory.
    """
    if (batch := scanner.decode(array, unique_keys=unique_keys)) is not None:
        return batch
    text = bytes(array)
    with suppress(BadEventError, InexactError):  # times as numbers; as text they are exact, or the error is
        return columns_of(text, quick_decoder(text), unique_keys=unique_keys)
    return columns_of(text, AS_TEXT, unique_keys=unique_keys)


def columns_of(array: bytes, decoder: Any, *, unique_keys: bool = False) -> Batch:
    """The same by a decoder of `events`; raises InexactError where numbers cannot tell times."""
    events = decode_events(array, decoder)
    if unique_keys:
        refuse_repeated_keys(array)
    groups = grouped(events)
    with_stacks = has_stacks(array)
    batch = Batch(n_events=len(events))
    strings, threads = Codes(), Codes()
    for (cat, ph), rows in groups.items():
        batch.categories[cat or ph] = batch.categories.get(cat or ph, 0) + len(rows)
    tables, others = rows_by_table(groups)
    refuse_odd_arguments(others)
    shared = shared_columns(tables, strings, threads)
    for table, rows in tables.items():
        kind, extract = EXTRACTORS[table]
        args = arguments(rows, StackArgs if table == "ops" and with_stacks else kind)
        columns = batch.tables[table] = shared.get(table, {}) | extract(rows, args)
        if table == "memory":
            columns["thread"] = threads_of(rows, threads)
        elif table == "kernels":
            _add_collectives(batch, rows, args, strings)
        elif table == "ops":
            _add_of_operators(batch, rows, args, strings)
    if arrows := flows(groups, threads):
        batch.tables["flows"] = arrows
    add_work(batch, counted_work(groups, strings))
    batch.thread_names = thread_names(groups)
    batch.strings = list(map(text_of, strings))
    batch.threads = [(text_of(pid), text_of(tid)) for pid, tid in threads]
    return batch


def _add_collectives(batch: Batch, kernels: list[Event], args: list[Any], strings: Codes) -> None:
    places = [place for place, arg in enumerate(args) if arg.collective]
    if places:
        batch.tables["collectives"] = kernel_collectives([kernels[place] for place in places], places, strings)


def _add_of_operators(batch: Batch, rows: list[Event], args: list[Any], strings: Codes) -> None:
    if COMM_OP in strings:
        batch.tables["comm_ops"] = operator_collectives(rows, strings)
    found, batch.signatures = signatures(rows, args)
    batch.tables["ops"] |= found
    if isinstance(args[0], StackArgs) and (frames := stack_frames(args, batch.tables["ops"], strings)):
        batch.tables["stacks"] = frames
    if EMBEDDING in strings:
        add_work(batch, embeddings(rows, args, strings))
