"""What profkit reads of the arguments of events: for each kind of row those that its columns are made from.

Any type, since no argument is worth refusing a trace for: `fields` makes numbers of them. One that no column of its
event is made from stays unread, so what makes an event good or bad stands in it alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from profkit.ingest.kineto.events import ABSENT, NO_ARGUMENTS, Event, decoded

_EMPTY = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False):
    """Any object, left unread."""


class LaneArgs(Args, gc=False):
    """Where on a device a row is."""

    device: Any = ABSENT
    stream: Any = ABSENT


class _LinkedArgs(Args, gc=False):
    external_id: Any = msgspec.field(name="External id", default=ABSENT)
    old_external_id: Any = msgspec.field(name="external id", default=ABSENT)


class CallArgs(_LinkedArgs, gc=False):
    """Of a call of the runtime or the driver."""

    correlation: Any = ABSENT


class CopyArgs(CallArgs, gc=False):
    """Of what runs on a device."""

    device: Any = ABSENT
    stream: Any = ABSENT
    n_bytes: Any = msgspec.field(name="bytes", default=ABSENT)
    graph_node: Any = msgspec.field(name="graph node id", default=0)


class KernelArgs(CopyArgs, gc=False):
    """Of a kernel; of one with a collective `CollectiveArgs` are read besides."""

    grid: Any = None
    block: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)


class OperatorArgs(_LinkedArgs, gc=False):
    """Of an operator."""

    sequence: Any = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=ABSENT)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_EMPTY)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_EMPTY)
    input_strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_EMPTY)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_EMPTY)


class StackArgs(OperatorArgs, gc=False):
    """Of an operator in a batch with stacks."""

    call_stack: msgspec.Raw = msgspec.field(name="Call stack", default=_EMPTY)


class FrameArgs(Args, gc=False):
    """Of a Python frame."""

    frame_id: Any = msgspec.field(name="Python id", default=ABSENT)
    parent_id: Any = msgspec.field(name="Python parent id", default=ABSENT)
    module_id: Any = msgspec.field(name="Python module id", default=ABSENT)


class MemoryArgs(Args, gc=False):
    """Of an allocation or a free."""

    address: Any = msgspec.field(name="Addr", default=ABSENT)
    memory_bytes: Any = msgspec.field(name="Bytes", default=0)
    allocated: Any = msgspec.field(name="Total Allocated", default=ABSENT)
    reserved: Any = msgspec.field(name="Total Reserved", default=ABSENT)
    device_type: Any = msgspec.field(name="Device Type", default=0)
    device_id: Any = msgspec.field(name="Device Id", default=ABSENT)


class CollectiveArgs(_LinkedArgs, gc=False):
    """Of a collective: its kernel, or the operator that announces it."""

    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    in_elements: Any = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=ABSENT)
    group_size: Any = msgspec.field(name="Group size", default=ABSENT)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=_EMPTY)
    seq: Any = msgspec.field(name="Seq", default=ABSENT)
    source_rank: Any = msgspec.field(name="Src Rank", default=ABSENT)
    target_rank: Any = msgspec.field(name="Dst Rank", default=ABSENT)


class LabelArgs(Args, gc=False):
    """Of a metadata row that names a thread."""

    label: Any = msgspec.field(name="name", default=None)


class CountArgs(Args, gc=False):
    """Of a count of work, by its kind."""

    tokens: Any = None
    padded_tokens: Any = None
    samples: Any = None


def arguments(rows: list[Event], kind: type[Args]) -> list[Any]:
    """The arguments of each event as `kind`, all absent where it has none; raises BadEventError."""
    found = _decoded(map(attrgetter("args"), rows), kind)
    return found if all(found) else [args or kind() for args in found]


def refuse_odd_arguments(rows: list[Event]) -> None:
    """Raise BadEventError for arguments that are no object."""
    _decoded([event.args for event in rows if event.args is not NO_ARGUMENTS], Args)


def _decoded(texts: Iterable[msgspec.Raw], kind: type[Args]) -> list[Any]:
    return decoded(_decoder(kind), b"[" + b",".join(texts) + b"]", "event.args")


@cache
def _decoder(kind: type[Args]) -> Any:
    return msgspec.json.Decoder(list[kind | None])  # type: ignore[valid-type]
