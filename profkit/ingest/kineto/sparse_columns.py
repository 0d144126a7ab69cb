"""The columns of what only some batches hold: collectives, arrows, counts of work, embeddings, names of threads."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Batch, Columns
from profkit.ingest.kineto.arguments import CollectiveArgs, CountArgs, LabelArgs, arguments
from profkit.ingest.kineto.events import (
    ABSENT,
    COMM_OP,
    COUNTED,
    EMBEDDING,
    NO_ARGUMENTS,
    BadEventError,
    Event,
    Groups,
)
from profkit.ingest.kineto.fields import (
    MOST_DIGITS,
    Codes,
    external_ids,
    integer,
    integers,
    starts,
    text_of,
    threads_of,
)
from profkit.ingest.numbers import MOST_STEPS, finite
from profkit.ingest.texts import LONGEST_LABEL

_EMBEDDED_DIMS: Final = re.compile(rb"\[\s*\[([0-9, ]+)\]\s*,\s*\[([0-9, ]+)\]")  # of its table, of its indices
_SIGNATURE: Final = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_BETWEEN: Final = b"\0"
WITHOUT_WORK: Final = frozenset(
    [
        *("detach", "detach_"),
        *("aten::alias", "aten::as_strided", "aten::broadcast_to", "aten::chunk", "aten::detach", "aten::detach_"),
        *("aten::expand", "aten::expand_as", "aten::flatten", "aten::narrow", "aten::permute", "aten::reshape"),
        *("aten::_reshape_alias", "aten::resolve_conj", "aten::resolve_neg", "aten::select"),
        *("aten::split", "aten::squeeze", "aten::t", "aten::transpose", "aten::unbind", "aten::unflatten"),
        *("aten::_unsafe_view", "aten::unsqueeze", "aten::view", "aten::view_as"),
        *("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::resize_", "aten::set_"),
        *("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense", "aten::result_type"),
        *("aten::lift_fresh", "aten::to"),
    ]
)
"""Operators that make a view or an empty tensor, ask a question, or leave the work to an operator inside them."""
_COUNTED_KINDS: Final = {f"profkit.{kind}": kind for kind in ("tokens", "padded_tokens", "samples")}


def kernel_collectives(rows: list[Event], places: list[int], strings: Codes) -> Columns:
    """The arguments of kernels that are collectives; `kernel` is their place among the batch's kernels."""
    args = arguments(rows, CollectiveArgs)
    return {"kernel": np.array(places, np.int64)} | _collective_arguments(args, strings)


def operator_collectives(rows: list[Event], strings: Codes) -> Columns:
    """The arguments of operators that announce a collective."""
    announced = [event for event in rows if event.name == COMM_OP and event.args != NO_ARGUMENTS]
    args = arguments(announced, CollectiveArgs)
    return {"external_id": external_ids(args)} | _collective_arguments(args, strings)


def _collective_arguments(args: list[Any], strings: Codes) -> Columns:
    source, target = integers(args, "source_rank"), integers(args, "target_rank")
    # some captures tell both ends of each: of a receive the other one is its source
    receives = np.array([one.collective == "recv" for one in args], np.bool_) & (source >= 0)
    return {
        "collective": _optional_strings(args, "collective", strings),
        "dtype": _optional_strings(args, "dtype", strings),
        "in_elements": integers(args, "in_elements"),
        "out_elements": integers(args, "out_elements"),
        "group_size": integers(args, "group_size"),
        "group_name": _optional_strings(args, "group_name", strings),
        "group_ranks": _optional_texts(args, "group_ranks", strings),
        "seq": integers(args, "seq"),
        "peer": np.where((target >= 0) & ~receives, target, source),
    }


def _optional_strings(args: list[Any], name: str, strings: Codes) -> NDArray[np.int32]:
    """The codes of an argument as text, -1 where it is absent; of old versions it is absent everywhere."""
    values = list(map(attrgetter(name), args))
    if values.count(None) == len(values):
        return np.full(len(values), ABSENT, np.int32)
    return np.array([ABSENT if value is None else strings[text_of(value)] for value in values], np.int32)


def _optional_texts(args: list[Any], name: str, strings: Codes) -> NDArray[np.int32]:
    """The codes of an argument as the file has it, -1 where it is absent."""
    values = list(map(attrgetter(name), args))
    if not any(values):
        return np.full(len(values), ABSENT, np.int32)
    try:
        texts = [bytes(value).decode() for value in values]
    except UnicodeDecodeError:
        raise BadEventError("Process Group Ranks is not text") from None
    return np.array([strings[text] if text else ABSENT for text in texts], np.int32)


def flows(groups: Groups, threads: Codes) -> Columns:
    """The forward-to-backward arrows; {} if there are none."""
    rows = [event for ph in ("s", "f") for event in groups.get(("fwdbwd", ph), ())]
    if not rows:
        return {}
    return {
        "start_ns": starts(rows),
        "flow_id": np.array([integer(event.id, ABSENT) for event in rows], np.int64),
        "thread": threads_of(rows, threads),
        "is_start": np.array([event.ph == "s" for event in rows], np.int8),
    }


def counted_work(groups: Groups, strings: Codes) -> Columns:
    """What a script told of its steps, a row for each step and kind of work; {} if it told nothing."""
    rows, values = [], []
    counts = groups.get(COUNTED, [])
    for event, args in zip(counts, arguments(counts, CountArgs), strict=True):
        value = getattr(args, _COUNTED_KINDS.get(str(event.name), ""), None)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = finite(value, 0, MOST_STEPS) if is_number else None
        if number is not None:
            rows.append(event)
            values.append(number)
    if not rows:
        return {}
    return {
        "start_ns": starts(rows),
        "name": np.array([strings[_COUNTED_KINDS[str(event.name)]] for event in rows], np.int32),
        "value": np.array(values, np.float64),
    }


def embeddings(rows: list[Event], args: list[Any], strings: Codes) -> Columns:
    """How many indices each embedding among these operators looked up, named by its table; {} without shapes."""
    from profkit.model.trace import EMBEDDED  # loaded after the reading, but for traces with shapes

    found, names, values = [], [], []
    for event, arg in zip(rows, args, strict=True):
        dims = _EMBEDDED_DIMS.match(arg.input_dims) if event.name == EMBEDDING else None
        if dims is not None:
            found.append(event)
            names.append(strings[f"{EMBEDDED}{dims[1][:LONGEST_LABEL].decode()}"])
            values.append(float(_product(re.findall(rb"[0-9]+", dims[2]))))
    if not found:
        return {}
    return {"start_ns": starts(found), "name": np.array(names, np.int32), "value": np.array(values, np.float64)}


def add_work(batch: Batch, rows: Columns) -> None:
    """Add rows of work: what is counted stands before what embeddings look up."""
    known = batch.tables.get("work")
    if known and rows:
        batch.tables["work"] = {name: np.concatenate((rows[name], known[name])) for name in rows}
    elif rows:
        batch.tables["work"] = rows


def signatures(rows: list[Event], args: list[Any]) -> tuple[Columns, list[tuple[bytes, ...]]]:
    """Which of the distinct texts of recorded arguments each operator has, and these texts; {} where there are none.

    -1 where none were recorded, and for operators that only look at tensors or make empty ones: half of all rows, and
    each text costs time.
    """
    if not any(map(attrgetter("input_dims"), args)):
        return {}, []
    places = [place for place, event in enumerate(rows) if event.name not in WITHOUT_WORK]
    # one text for all of them: a key that is hashed once, and no JSON has the byte between
    texts = map(_BETWEEN.join, map(attrgetter(*_SIGNATURE), [args[place] for place in places]))
    codes = Codes({_BETWEEN * (len(_SIGNATURE) - 1): 0})
    code = np.full(len(rows), ABSENT, np.int32)
    code[places] = np.fromiter(map(codes.__getitem__, texts), np.int32, len(places)) - 1
    found = [tuple(text.split(_BETWEEN, len(_SIGNATURE) - 1)) for text in codes][1:]
    return ({"signature": code}, found) if found else ({}, [])


def _product(sizes: list[bytes]) -> int:
    """The product of sizes as text, at most `MOST_STEPS`."""
    product = 1
    for size in sizes:
        product = min(product * int(size[:MOST_DIGITS]), MOST_STEPS)
    return product


def thread_names(groups: Groups) -> dict[tuple[str, str], str]:
    """The names of threads by (pid, tid)."""
    rows = [event for event in groups.get(("", "M"), ()) if event.name == "thread_name"]
    return {
        (text_of(event.pid), text_of(event.tid)): text_of(args.label)
        for event, args in zip(rows, arguments(rows, LabelArgs), strict=True)
        if args.label
    }
