"""The join: operators of a trace with the Python frames of the same trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, distinct, looked_up
from profkit.model.code import CodePlace
from profkit.model.trace import I32, Trace
from profkit.timeline.code.code import Code, Joined, calling_backward, in_frames
from profkit.timeline.code.frames import MODULE, Frame, Frames, Lines, frames_of, lines_of
from profkit.timeline.code.looks import spread
from profkit.timeline.code.modules import Module, modules_of
from profkit.timeline.code.phases import Backward, backward_of, phases_of
from profkit.timeline.code.trainers import Inside, inside_trainers

_MOST_EARLY: Final = 10_000
"""Frames that were running when the recording began. Chosen: a made-up file may claim any number."""
_BUILT_IN: Final = re.compile(r"^<built-in (?:method|function) (?P<name>\S+)(?: of (?P<kind>\S+) object)?")
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})$")
"""The rest of a function behind a graph break, as torch.compile names it."""
_HEAD: Final = re.compile(r"@|(?:async\s+)?def\b.*[:(,]$")
"""A line that begins a function and runs nothing of it: what is called there, the script does not call."""
CALLS_OF_BACKWARD: Final = ("backward()", "Tensor.backward()", "grad()")
"""What is called to run the backward pass."""
_OF_TENSORS: Final = re.compile(r"torch/_tensor\.py\(\d+\): __\w+__$")
_NO_CLASS: Final = frozenset(("type", "module", "PyCapsule", "FunctionMeta", "pybind11_type"))
"""What a built-in method may be "of" that says nothing: a class itself, or a namespace."""


def of_frames(trace: Trace) -> Code:
    """The places of a trace that holds Python frames."""
    trace = spread(trace)
    frames, named = frames_of(trace)
    modules, module_of_code = modules_of(trace, frames)
    module = looked_up(module_of_code, looked_up(frames.rows.name, frames.module))
    lines = lines_of(trace, frames, named)
    inside = inside_trainers(frames, lines)
    places, place_of_frame = _places(trace, frames, (modules, module), lines, inside)
    backward = backward_of(trace)
    joined = Joined(
        frames=frames,
        lines=lines,
        place_of_frame=place_of_frame,
        module_of_frame=module.astype(np.int32),
        is_backward=np.array([place.call in CALLS_OF_BACKWARD for place in places] or [False], np.bool_),
        phases=phases_of(trace, backward),
    )
    ops = trace.ops
    seen = in_frames(joined, ops.thread, ops.start_ns)
    place, inner = seen.place, seen.module
    _from_forward(trace, joined, backward, (seen.row, place, inner))
    return Code(
        places=places,
        modules=modules,
        ops=ops,
        place_of_op=place,
        module_of_op=inner,
        phase_of_op=seen.phase,
        joined=joined,
        trainer=inside.package,
    )


def _from_forward(trace: Trace, joined: Joined, backward: Backward, seen: tuple[I64, I32, I32]) -> None:
    """Give operators of the backward pass, in place, what their forward operator has.

    A frame of the user's own inside the node is nearer: a backward written by the user, a hook.
    """
    row, place, module = seen
    ops, frames = trace.ops, joined.frames
    node = backward.at(ops.thread, ops.start_ns)
    inside = np.flatnonzero(node >= 0)
    own = looked_up(frames.own, row[inside])
    begun = ops.start_ns[backward.rows[node[inside]]]
    is_inner = (own >= 0) & (looked_up(frames.rows.start_ns, own) >= begun)
    is_inner &= not trace.meta.frames_have_lines  # each operator has its own: that of a node is not in the node
    forward = backward.forward[node[inside]]
    chosen = (forward >= 0) & ~is_inner
    place[inside[chosen]] = place[forward[chosen]]
    module[inside[chosen]] = module[forward[chosen]]
    lost = inside[place[inside] < 0]
    place[lost] = calling_backward(joined, ops.start_ns[lost])


def _places(
    trace: Trace, frames: Frames, of_modules: tuple[tuple[Module, ...], NDArray[Any]], lines: Lines, inside: Inside
) -> tuple[tuple[CodePlace, ...], I32]:
    """The distinct places, and per frame its place, -1 outside the user's own code."""
    modules, module = of_modules
    own, name = frames.own, frames.rows.name
    named, line = lines.named, lines.line
    calls: dict[int, str] = {}
    is_made = frames.generated > own
    is_theirs = (frames.module > own) & (frames.library > frames.module)
    function, is_early = (
        (name.astype(np.int64), np.zeros(name.size, np.bool_))
        if trace.meta.frames_have_lines
        else _functions(frames, named)
    )
    keys = np.stack(
        (
            looked_up(function, own),
            looked_up(is_early, own, none=False),
            _alike(trace, looked_up(name, frames.callee), calls),
            looked_up(line, frames.called, none=0),
            module,
            is_made,
            np.where(is_theirs, looked_up(name, frames.library), -1),
            inside.of_frame,
            inside.hook_of_frame,
        )
    ).astype(np.int64)
    distinct, place = _distinct(keys)
    has_lines = trace.meta.frames_have_lines
    places: list[CodePlace] = []
    number = np.full(distinct.shape[1], -1, np.int32)
    for at, (code, early, call, called_line, inner, made, library, within, hook) in enumerate(distinct.T.tolist()):
        if code < 0:
            continue
        frame = named[code]
        number[at] = len(places)
        text = lines.text(frame, called_line)
        runs = _HEAD.match(text) is None
        theirs, leaf = inside.words[within] if within >= 0 else ("", "")
        places.append(
            CodePlace(
                file=frame.file,
                function=frame.function,
                defined=0 if early or has_lines else frame.line,
                line=frame.line if has_lines else called_line * runs,
                text=text * runs,
                call=calls.get(call, "") * runs,
                module=modules[inner].name if inner >= 0 else "",
                library=named[library].shown if library >= 0 else leaf,
                is_generated=bool(made),
                inside=theirs,
                beside=inside.hooks[hook] if hook >= 0 else "",
            )
        )
    return tuple(places), number[place]


def _distinct(keys: I64) -> tuple[I64, I32]:
    """The distinct columns of a table, and for each column of it which one it is."""
    order = np.lexsort(keys)
    ordered = keys[:, order]
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    place = np.empty(order.size, np.int32)
    place[order] = np.cumsum(is_new) - 1
    return ordered[:, is_new], place


def _functions(frames: Frames, named: Mapping[int, Frame]) -> tuple[I64, Bool]:
    """Per frame the code of its name, and whether its line is where it stood when the recording began.

    Such a frame takes the name of the one function of its name in its file that was called later; so does the rest of a
    function behind a graph break.
    """
    code, is_early = frames.rows.name.astype(np.int64), frames.is_early.copy()
    begun: dict[tuple[str, str], set[int]] = {}
    for each in distinct(code[~is_early]).tolist():
        if each in named:
            begun.setdefault((named[each].file, named[each].function), set()).add(each)
    for row in np.flatnonzero(is_early)[:_MOST_EARLY].tolist():
        frame = named.get(int(code[row]))
        known = begun.get((frame.file, frame.function), set()) if frame is not None else set()
        if len(known) == 1:
            code[row], is_early[row] = next(iter(known)), False
    for each, frame in named.items():
        resumed = _RESUMED.match(frame.function)
        known = begun.get((frame.file, resumed["function"]), set()) if resumed is not None else set()
        above = [one for one in known if resumed is not None and named[one].line <= int(resumed["line"])]
        if above:
            code[code == each] = max(above, key=lambda one: named[one].line)
    return code, is_early


def _alike(trace: Trace, called: I64, calls: dict[int, str]) -> I64:
    """The codes of the names called, with one code for all names that read alike; fills `calls` with how they read."""
    first: dict[str, int] = {}
    out = np.arange(len(trace.strings) + 1, dtype=np.int64)
    out[-1] = -1
    for code in distinct(called).tolist():
        if code >= 0:
            words = call_words(trace.name(code))
            out[code] = first.setdefault(words, code)
            calls[out[code]] = words
    return out[called]


def call_words(name: str) -> str:
    """What a frame's name calls, as people write it: `Tensor.item()`, `Linear`, `backward()`."""
    if name.startswith(MODULE):
        return name.removeprefix(MODULE).rpartition("_")[0] or name.removeprefix(MODULE)
    match = _BUILT_IN.match(name)
    if match is not None:
        kind = match["kind"] or ""
        return f"{match['name'].rstrip('>')}()" if kind in _NO_CLASS or not kind else f"{kind}.{match['name']}()"
    function = name.rpartition("): ")[2]
    whose = "Tensor." if _OF_TENSORS.match(name) else ""
    return f"{whose}{function}()" if function != name else ""
