"""Events of the usual categories, each read into just the fields that its table needs: faster than reading all.

A union tagged by `cat`: the decoder picks the type and leaves out what that type lacks, and the type is the group. What
does not fit (another category or phase, metadata rows, a field of another kind) sends the whole batch the general way
of `events`, which takes everything or says what is wrong. Attributes are named as there, so that `columns` serves both.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Final, Literal, Union

import msgspec

from profkit.ingest.events import COMM_OP, Groups, Id, RareArgs

_ZERO: Final = msgspec.Raw(b"0")
_COMM_OP: Final = COMM_OP.encode()


_OPERATOR: Final = ("external_id", "old_external_id")
_CALL: Final = (*_OPERATOR, "correlation")
_LANE: Final = ("device", "stream")
_COPY: Final = (*_CALL, *_LANE, "n_bytes", "graph_node")
_COLLECTIVE: Final = (
    *("collective", "dtype", "in_elements", "out_elements"),
    *("group_size", "group_name", "group_ranks", "seq"),
)
_KERNEL: Final = (*_COPY, "grid", "block", *_COLLECTIVE)
_MEMORY: Final = ("memory_bytes", "allocated", "reserved", "device_type", "device_id")
_ARGUMENTS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("cpu_op", "Operator"), _OPERATOR),
    (("user_annotation", "python_function", "overhead", "Trace"), ()),
    (("cuda_runtime", "cuda_driver", "Runtime"), _CALL),
    (("gpu_user_annotation", "cuda_sync"), _LANE),
    (("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"), _COPY),
    (("kernel", "Kernel"), _KERNEL),
)
"""The arguments of `events.RareArgs` that the tables of these categories are made from."""


class _NoArgs(msgspec.Struct, gc=False):
    """Any object, left unread."""


class _Usual(msgspec.Struct, gc=False):
    """What all have. A field that no table needs is there for its type: both ways must refuse the same events."""

    has_text_of_dur: ClassVar[bool] = False
    name: str | int | None = ""
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = _ZERO
    id: Id = None


class _Range(_Usual, kw_only=True, gc=False):
    """A range; `dur` in us went through float64, so `columns` checks what that may have lost."""

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
def _decoder(has_comm_ops: bool) -> tuple[Any, dict[type, tuple[str, str]]]:
    """Give the decoder and, for each of its types, the group as `events.decode_groups` names it."""
    groups: dict[type, tuple[str, str]] = {}
    for categories, names in _ARGUMENTS:
        args = _args_of((*_OPERATOR, *_COLLECTIVE) if has_comm_ops and names is _OPERATOR else names)
        for category in categories:
            groups[_tagged(category, _Range, args)] = (category, "X")
    groups[_tagged("cpu_instant_event", _Instant, _args_of(_MEMORY))] = ("cpu_instant_event", "i")
    groups[_tagged("fwdbwd", _Flow, _NoArgs)] = ("fwdbwd", "")
    for category in ("ac2g", "async_cpu_to_gpu", "async_gpu", "async"):
        groups[_tagged(category, _Arrow, _NoArgs)] = (category, "s")
    return msgspec.json.Decoder(list[Union[tuple(groups)]]), groups  # type: ignore[misc]  # noqa: UP007


def _args_of(names: tuple[str, ...]) -> type:
    known = {field.name: field for field in msgspec.structs.fields(RareArgs)}
    fields = [
        (name, known[name].type, msgspec.field(name=known[name].encode_name, default=known[name].default))
        for name in names
    ]
    flags = {"has_collective": "seq" in names}
    return msgspec.defstruct("_Args", fields, gc=False, namespace=flags) if fields else _NoArgs


def _tagged(category: str, base: type, args: Any) -> type:
    fields: list[tuple[str, Any, Any]] = [("args", args | None, None)]
    return msgspec.defstruct(f"_{category}", fields, bases=(base,), tag_field="cat", tag=category, gc=False)


def decode_usual(array: bytes) -> Groups | None:
    """Give the events of a JSON array by (category, phase) if all are usual, `None` if the general way must look."""
    decoder, group_of = _decoder(_COMM_OP in array)
    try:
        events = decoder.decode(array)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    by_type: dict[type, list[Any]] = {}
    for event in events:
        kind = type(event)
        if kind in by_type:
            by_type[kind].append(event)
        else:
            by_type[kind] = [event]
    groups = {group_of[kind]: rows for kind, rows in by_type.items()}
    for flow in groups.pop(("fwdbwd", ""), ()):
        groups.setdefault(("fwdbwd", flow.ph), []).append(flow)
    return groups
