"""Events of the usual categories, each read into just the fields that its table needs: faster than reading all.

A union tagged by `cat`: the decoder picks the type and leaves out what that type lacks, and the type is the group. What
does not fit (another category or phase, metadata rows, a field of another kind) sends the whole batch the general way
of `events`, which takes everything or says what is wrong. Attributes are named as there, so that `columns` serves both.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, Literal, Union

import msgspec

from profkit.ingest.kineto.decimals import FLOAT_STEP_BELOW_HALF_NS
from profkit.ingest.kineto.events import COMM_OP, Groups, Id, RareArgs

_ZERO: Final = msgspec.Raw(b"0")
_FIRST_TS: Final = re.compile(rb'"ts"\s*:\s*([0-9]+)(\.?)')
_LOOK_BYTES: Final = 4096

_IDS: Final = ("external_id", "old_external_id")
_CALL: Final = (*_IDS, "correlation")
_LANE: Final = ("device", "stream")
_COPY: Final = (*_CALL, *_LANE, "n_bytes", "graph_node")
_COLLECTIVE: Final = (
    *("collective", "dtype", "in_elements", "out_elements"),
    *("group_size", "group_name", "group_ranks", "seq", "source_rank", "target_rank"),
)
_OPERATOR: Final = (
    *(*_IDS, "sequence", "forward_thread"),
    *("input_dims", "input_types", "input_strides", "concrete_inputs"),
)
"""Also where a batch has none of these: to look for their names in its text takes five times as long."""
_FRAME: Final = ("frame_id", "parent_id", "module_id")
_KERNEL: Final = (*_COPY, "grid", "block", *_COLLECTIVE)
_MEMORY: Final = ("address", "memory_bytes", "allocated", "reserved", "device_type", "device_id")
_ARGUMENTS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("cpu_op", "Operator"), _OPERATOR),
    (("python_function",), _FRAME),
    (("user_annotation", "overhead", "Trace"), ()),
    (("cuda_runtime", "cuda_driver", "Runtime"), _CALL),
    (("gpu_user_annotation", "cuda_sync"), _LANE),
    (("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"), _COPY),
    (("kernel", "Kernel"), _KERNEL),
)
"""The arguments of `events.RareArgs` that the tables of these categories are made from."""
_COMM_OP: Final = COMM_OP.encode()
"""Operators have the arguments of a collective only in batches that hold this text."""


class _NoArgs(msgspec.Struct, gc=False):
    """Any object, left unread."""


class _Usual(msgspec.Struct, gc=False):
    """What all have. A field that no table needs is there for its type: both ways must refuse the same events."""

    name: str | int | None = ""
    pid: Id = None
    tid: Id = None
    id: Id = None


class _Range(_Usual, kw_only=True, gc=False):
    """A range. `ts` (of `_tagged`) and `dur`, in us, may be numbers: `columns` checks what float64 may have lost."""

    ph: Literal["X"]
    dur: int | float = 0


class _Instant(_Usual, kw_only=True, gc=False):
    ph: Literal["i"]
    dur: msgspec.Raw = _ZERO


class _Flow(_Usual, kw_only=True, gc=False):
    """From a forward operator to its backward one."""

    ph: Literal["s", "f"]
    dur: msgspec.Raw = _ZERO


class _Arrow(_Usual, gc=False):
    """From a launch to its device row: counted, not kept."""

    ph: str = ""
    dur: msgspec.Raw = _ZERO


@cache
def _decoder(ts_type: type, *, has_collectives: bool, with_stacks: bool) -> tuple[Any, dict[type, tuple[str, str]]]:
    """The decoder and, for each of its types, the group as `events.decode_groups` names it."""
    groups: dict[type, tuple[str, str]] = {}
    for categories, names in _ARGUMENTS:
        more = (_COLLECTIVE if has_collectives else ()) + (("call_stack",) if with_stacks else ())
        args = _args_of(names + more if names is _OPERATOR else names)
        for category in categories:
            groups[_tagged(category, _Range, ts_type, args)] = (category, "X")
    groups[_tagged("cpu_instant_event", _Instant, ts_type, _args_of(_MEMORY))] = ("cpu_instant_event", "i")
    groups[_tagged("fwdbwd", _Flow, ts_type, _NoArgs)] = ("fwdbwd", "")
    for category in ("ac2g", "async_cpu_to_gpu", "async_gpu", "async"):
        groups[_tagged(category, _Arrow, msgspec.Raw, _NoArgs)] = (category, "s")
    return msgspec.json.Decoder(list[Union[tuple(groups)]]), groups  # type: ignore[misc]  # noqa: UP007


def _args_of(names: tuple[str, ...]) -> type:
    known = {field.name: field for field in msgspec.structs.fields(RareArgs)}
    fields = [
        (name, known[name].type, msgspec.field(name=known[name].encode_name, default=known[name].default))
        for name in names
    ]
    flags = {"has_collective": "seq" in names}
    return msgspec.defstruct("_Args", fields, gc=False, namespace=flags) if fields else _NoArgs


def _tagged(category: str, base: type, ts_type: Any, args: Any) -> type:
    zero = _ZERO if ts_type is msgspec.Raw else ts_type(0)
    fields: list[tuple[str, Any, Any]] = [("args", args | None, None), ("ts", ts_type, zero)]
    return msgspec.defstruct(f"_{category}", fields, bases=(base,), tag_field="cat", tag=category, gc=False)


def _type_of_ts(array: bytes) -> type:
    """The type to read `ts` as, by the first one: whole numbers, float64 where that is exact, or text.

    Kineto writes whole us since 1970, or since torch 2.3 three decimals since a day of the same quarter: for half of a
    quarter float64 is exact (`numbers_to_ns`).
    """
    first = _FIRST_TS.search(array, 0, _LOOK_BYTES)
    if first is None:
        return msgspec.Raw
    if not first[2]:
        return int
    return float if int(first[1]) < FLOAT_STEP_BELOW_HALF_NS else msgspec.Raw


def decode_usual(array: bytes, *, with_stacks: bool = False) -> Groups | None:
    """The events of a JSON array by (category, phase) if all are usual, `None` if the general way must look."""
    decoder, group_of = _decoder(_type_of_ts(array), has_collectives=_COMM_OP in array, with_stacks=with_stacks)
    try:
        events = decoder.decode(array)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    groups = {group_of[type(rows[0])]: rows for rows in _by_type(events)}
    for flow in groups.pop(("fwdbwd", ""), ()):
        groups.setdefault(("fwdbwd", flow.ph), []).append(flow)
    return groups


def _by_type(events: list[Any]) -> list[list[Any]]:
    """The events of each type, in their order; the type whose first event is earliest first."""
    rows: dict[type, list[Any]] = {}
    for event in events:  # the one loop over events; faster than numpy's sort by codes of types
        kind = type(event)
        try:
            rows[kind].append(event)
        except KeyError:
            rows[kind] = [event]
    return list(rows.values())
