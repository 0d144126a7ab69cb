"""What a reader hands over: columns of a file's events, in batches, before they become a `Trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from numpy.typing import NDArray

if TYPE_CHECKING:  # what a trace is made of is loaded while other processes decode it
    from profkit.model.trace import TraceWarning, Traits

Columns = dict[str, NDArray[Any]]
"""Column name to values; all columns of one table have one length.

Tables of ranges have `start_ns` and `end_ns` (int64), `name` and `thread` (int32 codes of the batch). Beyond these:
    spans, overhead, waits            none
    samples                           no end_ns, but module, caller (int32)
    ops                               external_id (int64); where told: sequence, forward_thread (int64), signature
                                      (int32 code of `Batch.signatures`)
    python                            where told: frame_id, parent_id, module_id (int64)
    stacks                            none: frames from the stacks of operators, used where `python` has no rows
    calls                             external_id, correlation (int64)
    kernels, copies                   no thread, but device, grid, block (int32), is_copy (bool), and
                                      stream, correlation, external_id, n_bytes, graph_node (int64)
-1 is an id or a number that the file does not tell. A batch may lack tables, and columns that it has "where told";
`kineto` has further tables.
"""


class Batch(msgspec.Struct):
    """Raw columns per table with strings of the batch's own; codes index `strings`, threads index `threads`."""

    n_events: int = 0
    tables: dict[str, Columns] = msgspec.field(default_factory=dict)
    strings: list[str] = msgspec.field(default_factory=list)
    threads: list[tuple[str, str]] = msgspec.field(default_factory=list)
    thread_names: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    categories: dict[str, int] = msgspec.field(default_factory=dict)
    signatures: list[tuple[bytes, ...]] = msgspec.field(default_factory=list)
    """Texts of the arguments of operators, as the file has them: dimensions, types, strides, concrete values."""


class RawTrace(msgspec.Struct):
    """What the reading of one file gives, before it becomes a `Trace`."""

    source: str
    traits: Traits
    n_in_source: int = 1
    batches: list[Batch] = msgspec.field(default_factory=list)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    n_bytes: int = 0
    warnings: list[TraceWarning] = msgspec.field(default_factory=list)

    @property
    def n_events(self) -> int:
        """Whole events read."""
        return sum(batch.n_events for batch in self.batches)

    def warn(self, warning_id: str, message: str, *, count: int = 1) -> None:
        """Note what is wrong with the file."""
        from profkit.model.trace import TraceWarning

        self.warnings.append(TraceWarning(id=warning_id, message=message, count=count))
