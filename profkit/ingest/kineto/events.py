"""JSON events as typed values: what profkit reads of them, how a batch is decoded, and its groups by category.

Field meanings: Kineto's `output_json.cpp` and `ActivityType.h`; older spellings (capitalised categories, "external id",
"stream 7" as tid) from traces of torch 1.8 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from profkit.ingest.kineto import split

Id = int | str | None
ABSENT: Final = -1

_ZERO = msgspec.Raw(b"0")
_NONE = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False):
    """The arguments that every event may carry; of any type, since none of them is worth refusing a trace for."""

    has_collective: ClassVar[bool] = False  # whether the arguments of a collective were read as well
    external_id: Any = msgspec.field(name="External id", default=ABSENT)
    correlation: Any = ABSENT
    device: Any = ABSENT
    stream: Any = ABSENT
    grid: Any = None
    block: Any = None
    n_bytes: Any = msgspec.field(name="bytes", default=ABSENT)
    graph_node: Any = msgspec.field(name="graph node id", default=0)
    old_external_id: Any = msgspec.field(name="external id", default=ABSENT)
    collective: Any = msgspec.field(name="Collective name", default=None)
    memory_bytes: Any = msgspec.field(name="Bytes", default=0)
    address: Any = msgspec.field(name="Addr", default=ABSENT)
    allocated: Any = msgspec.field(name="Total Allocated", default=ABSENT)
    reserved: Any = msgspec.field(name="Total Reserved", default=ABSENT)
    device_type: Any = msgspec.field(name="Device Type", default=0)
    device_id: Any = msgspec.field(name="Device Id", default=ABSENT)
    sequence: Any = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=ABSENT)
    frame_id: Any = msgspec.field(name="Python id", default=ABSENT)
    parent_id: Any = msgspec.field(name="Python parent id", default=ABSENT)
    module_id: Any = msgspec.field(name="Python module id", default=ABSENT)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NONE)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NONE)
    input_strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NONE)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NONE)
    call_stack: msgspec.Raw = msgspec.field(name="Call stack", default=_NONE)


class RareArgs(Args, gc=False):
    """The arguments of metadata rows, collectives and counts: decoded only in batches with such rows."""

    has_collective: ClassVar[bool] = True
    dtype: Any = None
    in_elements: Any = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=ABSENT)
    group_size: Any = msgspec.field(name="Group size", default=ABSENT)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=msgspec.Raw(b""))
    seq: Any = msgspec.field(name="Seq", default=ABSENT)
    source_rank: Any = msgspec.field(name="Src Rank", default=ABSENT)
    target_rank: Any = msgspec.field(name="Dst Rank", default=ABSENT)
    label: Any = msgspec.field(name="name", default=None)
    tokens: Any = None
    padded_tokens: Any = None
    samples: Any = None


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents, as far as profkit reads it."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = ""
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO
    args: Args | None = None
    id: Id = None


class RareEvent(Event, gc=False):
    """The same with every argument profkit knows."""

    args: RareArgs | None = None


class AnnouncedArgs(msgspec.Struct, gc=False):
    """Of the arguments of an operator that announces a collective those that say which."""

    has_collective: ClassVar[bool] = True
    external_id: Any = msgspec.field(name="External id", default=ABSENT)
    old_external_id: Any = msgspec.field(name="external id", default=ABSENT)
    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    in_elements: Any = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=ABSENT)
    group_size: Any = msgspec.field(name="Group size", default=ABSENT)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=_NONE)
    seq: Any = msgspec.field(name="Seq", default=ABSENT)
    source_rank: Any = msgspec.field(name="Src Rank", default=ABSENT)
    target_rank: Any = msgspec.field(name="Dst Rank", default=ABSENT)


class Announced(msgspec.Struct, gc=False):
    """An operator that announces a collective: there are thousands, and most fields of `RareEvent` are not for it."""

    name: str | int | None = ""
    args: AnnouncedArgs | None = None


Groups = dict[tuple[str, str], list[Event]]

_COMMON = msgspec.json.Decoder(list[Event])
_RARE = msgspec.json.Decoder(list[RareEvent])
_ANNOUNCED = msgspec.json.Decoder(list[Announced])
_MEMBERS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

COMM_OP: Final = "record_param_comms"
EMBEDDING: Final = "aten::embedding"
COUNTED: Final = ("profkit", "C")
"""Category and phase of what a script told `profkit.capture.step`."""

LAUNCH_ARROWS: Final = {"ac2g", "async_cpu_to_gpu", "async_gpu", "async"}
"""Arrows from launch to device row: they only repeat `correlation`, so they are counted and not kept."""


class BadEventError(ValueError):
    """An event that cannot be read; `row` is its position in the batch, -1 if unknown."""

    def __init__(self, message: str, row: int = -1) -> None:
        super().__init__(message)
        self.row = row


def decode_groups(array: bytes, *, unique_keys: bool, every_argument: bool) -> Groups:
    """The events of a JSON array by (category, phase); see `batch.decode_batch`."""
    events = _decode(_COMMON, array)
    if unique_keys:
        _refuse_repeated_keys(array)
    groups = _grouped(events)
    return _grouped(_decode(_RARE, array)) if every_argument or _needs_rare_arguments(groups) else groups


def decode_rare(array: bytes) -> list[Any]:
    """The events of a JSON array with every argument, as `RareEvent`; raises BadEventError."""
    return _decode(_RARE, array)


def decode_announced(array: bytes) -> list[Any]:
    """The events of a JSON array that are known to be whole, as `Announced`; raises BadEventError."""
    return _decode(_ANNOUNCED, array)


def _refuse_repeated_keys(array: bytes) -> None:
    """Compare the members of each event, as its text has them, with its distinct keys (those of `args` are free)."""
    distinct = np.fromiter(map(len, _decode(_MEMBERS, array)), np.int64)
    repeated = np.flatnonzero(split.count_members(array) > np.maximum(distinct, 1))
    if repeated.size:
        row = int(repeated[0])
        raise BadEventError(f"key {_repeated_key(split.elements(array)[row])!r} appears twice", row)


def _repeated_key(event: bytes) -> str:
    try:
        members: list[tuple[str, Any]] = json.loads(event, object_pairs_hook=list)
    except (ValueError, RecursionError):  # an integer too long for Python, bytes that are no text: not our question
        return "?"
    keys = [key for key, _ in members]
    return next((key[:40] for key in keys if keys.count(key) > 1), "?")


def _decode(decoder: Any, array: bytes) -> list[Any]:
    try:
        rows: list[Any] = decoder.decode(array)
    except RecursionError:
        raise BadEventError("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadEventError(_readable(error)) from None
    return rows


def _needs_rare_arguments(groups: Groups) -> bool:
    if COUNTED in groups or any(ph == "M" for _, ph in groups):
        return True
    if COMM_OP in map(attrgetter("name"), groups.get(("cpu_op", "X"), ())):
        return True
    kernels = (event for cat in ("kernel", "Kernel") for event in groups.get((cat, "X"), ()))
    return any(event.args is not None and event.args.collective for event in kernels)


def _readable(error: Exception) -> str:
    return re.sub(r"\$\[(?:\.\.\.|\d+)\]", "event", str(error)).replace("`", "'")


class _Appends(dict[str | None, Callable[[Event], None]]):
    """Gives the `append` of a list per category, making the list at first sight."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str | None, list[Event]] = {}

    def __missing__(self, category: str | None) -> Callable[[Event], None]:
        rows: list[Event] = []
        self.lists[category] = rows
        self[category] = rows.append
        return rows.append


def _grouped(events: list[Event]) -> Groups:
    appends = _Appends()
    for event in events:  # as in `usual`, the one loop over events; everything after it is per group or per column
        appends[event.cat](event)
    groups: Groups = {}
    for cat, rows in appends.lists.items():
        if cat in LAUNCH_ARROWS:
            groups[cat or "", "s"] = rows
            continue
        phases = dict.fromkeys(map(attrgetter("ph"), rows))  # in order, so that codes are the same in every run
        for ph in phases:
            groups[cat or "", ph] = rows if len(phases) == 1 else [event for event in rows if event.ph == ph]
    return groups
