"""The host's time by stack of calls, for a flame graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.timeline import Facts
from profkit.timeline.code.frames import read_frame
from profkit.timeline.code.join import call_words
from profkit.version import __version__

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_MOST_LEVELS: Final = 1_000
"""Calls inside each other: Python's own limit."""
_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class Stacks(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of one thread with the time spent in each, outside what they call; the outermost call first."""

    thread: str
    stacks: tuple[tuple[str, ...], ...]
    ns: tuple[int, ...]


def folded(facts: Facts) -> tuple[Stacks, ...]:
    """The stacks of all threads over the window; empty where the trace's own frames are not recorded."""
    code, trace = facts.code, facts.trace
    if code is None or code.joined is None:
        return ()
    paths, names = _paths(code, trace.strings)
    out = []
    for thread, (since, row) in sorted(code.joined.frames.innermost.items()):
        low, high = trace.window_ns
        spent = Intervals.pairs([(low, high)]).covered_ns(since, np.append(since[1:], since[-1:]))
        kept = (row != NO_ROW) & (spent > 0)
        total = np.bincount(paths[row[kept]], weights=spent[kept]).astype(np.int64)
        by_words: dict[tuple[str, ...], int] = {}  # modules of one class read alike
        for one in np.flatnonzero(total).tolist():
            by_words[names[one]] = by_words.get(names[one], 0) + int(total[one])
        if by_words:
            of = trace.threads[thread]
            name = of.name or f"thread {of.tid}"
            out.append(Stacks(thread=name, stacks=tuple(by_words), ns=tuple(by_words.values())))
    return tuple(out)


def _paths(code: Code, strings: tuple[str, ...]) -> tuple[I64, dict[int, tuple[str, ...]]]:
    """Per frame the number of its stack, and the names of each stack: frames of one name and one stack around are one."""
    assert code.joined is not None  # noqa: S101 - `folded` asks
    frames = code.joined.frames
    name, parent = frames.rows.name.astype(np.int64), frames.parent
    path = np.full(name.size, -1, np.int64)
    names: dict[int, tuple[str, ...]] = {-1: ()}
    words: dict[int, str] = {}
    here = np.flatnonzero(parent < 0)
    children = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[children], np.arange(name.size))
    last = np.searchsorted(parent[children], np.arange(name.size), "right")
    for _ in range(_MOST_LEVELS):
        if here.size == 0:
            break
        around = np.where(parent[here] >= 0, path[np.maximum(parent[here], 0)], -1)
        keys, place = np.unique(around * (len(strings) + 1) + name[here], return_inverse=True)
        base = len(names) - 1
        for one, key in enumerate(keys.tolist()):
            outer, inner = divmod(key, len(strings) + 1)
            names[base + one] = (*names[outer], words.setdefault(inner, frame_words(strings[inner])))
        path[here] = base + place.reshape(-1)
        here = np.concatenate([children[first[one] : last[one]] for one in here.tolist()] or [here[:0]])
    return path, names


def frame_words(name: str) -> str:
    """A frame as a flame graph shows it: without addresses, which would keep alike ones apart."""
    return call_words(name) if name.startswith(("<built-in", "nn.Module")) and call_words(name) else name


def collapsed(stacks: tuple[Stacks, ...]) -> str:
    """Lines of Brendan Gregg's format, `a;b;c 123`, in microseconds; the thread stands first where there are several."""
    lines = []
    for one in stacks:
        head = (one.thread,) if len(stacks) > 1 else ()
        for stack, ns in zip(one.stacks, one.ns, strict=True):
            if ns >= 1000:
                lines.append(";".join(_plain(name) for name in (*head, *stack)) + f" {ns // 1000}")
    return "\n".join(lines) + "\n"


def speedscope(stacks: tuple[Stacks, ...], source: str) -> str:
    """The stacks as speedscope reads them (https://www.speedscope.app): a profile for each thread."""
    frames: dict[str, int] = {}
    profiles: list[dict[str, Any]] = []
    for one in stacks:
        samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack in one.stacks]
        profiles.append(
            {
                "type": "sampled",
                "name": one.thread,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(one.ns),
                "samples": samples,
                "weights": list(one.ns),
            }
        )
    document = {
        "$schema": _SCHEMA,
        "name": source,
        "exporter": f"profkit {__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(name) for name in frames]},
        "profiles": profiles,
    }
    return json.dumps(document)


def _frame(name: str) -> dict[str, Any]:
    read = read_frame(name, {})
    if read is None:
        return {"name": name}
    return {"name": f"{read.function} ({read.file}:{read.line})", "file": read.file, "line": read.line}


def _plain(name: str) -> str:
    return name.replace(";", ",").replace("\n", " ")
