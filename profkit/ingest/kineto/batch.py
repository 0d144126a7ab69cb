"""One batch of events as columns: a pure function, so that any process can do it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from profkit.ingest.assemble.raw import Batch
from profkit.ingest.kineto.columns import EXTRACTORS, rows_by_table, shared_columns
from profkit.ingest.kineto.events import COMM_OP, EMBEDDING, Groups, decode_groups
from profkit.ingest.kineto.fast_decoder import decode_usual
from profkit.ingest.kineto.fields import Codes, InexactError, text_of, threads_of
from profkit.ingest.kineto.native import decode as native
from profkit.ingest.kineto.sparse_columns import (
    counted_work,
    embeddings,
    flows,
    kernel_collectives,
    operator_collectives,
    signatures,
    thread_names,
)
from profkit.ingest.kineto.stacks import has_stacks, stack_frames


def decode_batch(array: bytes | memoryview, *, unique_keys: bool = False, every_argument: bool = False) -> Batch:
    """The columns of a JSON array of whole events; raises BadEventError.

    `unique_keys` also refuses an event in which a key stands twice; otherwise the last one counts, as in any reader.
    `every_argument` reads also those that these events do not need, as happens when others of their batch need them:
    what is good then is good in any company. Nothing of the batch lies in the array's memory.
    """
    if not every_argument and (batch := native.decode(array, unique_keys=unique_keys)) is not None:
        return batch
    array = bytes(array)
    with_stacks = has_stacks(array)
    if not (unique_keys or every_argument) and (usual := decode_usual(array, with_stacks=with_stacks)) is not None:
        with suppress(InexactError):
            return _columns(usual, with_stacks=with_stacks)
    groups = decode_groups(array, unique_keys=unique_keys, every_argument=every_argument)
    return _columns(groups, with_stacks=with_stacks)


def _columns(groups: Groups, *, with_stacks: bool) -> Batch:
    batch = Batch(n_events=sum(map(len, groups.values())))
    strings, threads = Codes(), Codes()
    for (cat, ph), rows in groups.items():
        batch.categories[cat or ph] = batch.categories.get(cat or ph, 0) + len(rows)
    tables = rows_by_table(groups)
    shared = shared_columns(tables, strings, threads)
    for table, rows in tables.items():
        batch.tables[table] = shared.get(table, {}) | EXTRACTORS[table](rows)
        if table == "memory":
            batch.tables[table]["thread"] = threads_of(rows, threads)
        if table == "kernels" and any(event.args is not None and event.args.collective for event in rows):
            batch.tables["collectives"] = kernel_collectives(rows, strings)
        if table == "ops" and COMM_OP in strings:
            batch.tables["comm_ops"] = operator_collectives(rows, strings)
        if table == "ops":
            found, batch.signatures = signatures(rows)
            batch.tables[table] |= found
        if table == "ops" and with_stacks and (frames := stack_frames(rows, shared["ops"], strings)):
            batch.tables["stacks"] = frames
        if table == "ops" and EMBEDDING in strings and (found := embeddings(rows, strings)):
            batch.tables["work"] = found
    if arrows := flows(groups, threads):
        batch.tables["flows"] = arrows
    if work := counted_work(groups, strings):
        found = batch.tables.get("work", {})
        batch.tables["work"] = {name: np.concatenate((work[name], found[name])) for name in work} if found else work
    batch.thread_names = thread_names(groups)
    batch.strings = list(map(text_of, strings))
    batch.threads = [(text_of(pid), text_of(tid)) for pid, tid in threads]
    return batch
