"""Times summed by place: the one way from the rows of a finding to the lines that cause it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct_codes
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

MOST: Final = 5
"""Places of a finding. Chosen: a handful; what comes after has a few percent."""
_LEAST: Final = 0.01
"""Share of the time from which a place is told. Chosen."""
_LEAST_FIRST: Final = 0.05
"""Share of the time from which a line of the user's comes before those of a package that runs the loop. Chosen."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What a time consists of: moments of host threads, and the time that each stands for, shape (n,) each."""

    thread: NDArray[np.int32]
    """-1 where what stands behind is not known: its time counts, and has no place."""
    at_ns: I64
    ns: I64

    @classmethod
    def empty(cls) -> Self:
        """No time at all."""
        return cls.of_thread(-1, Intervals.empty())

    @classmethod
    def of_thread(cls, thread: int, times: Intervals) -> Self:
        """Times of one thread, of which no frames are known."""
        return cls(thread=np.full(len(times), thread, np.int32), at_ns=times.start_ns, ns=times.lengths_ns)

    @classmethod
    def of_calls(cls, trace: Trace, rows: NDArray[np.integer[Any]], ns: I64) -> Self:
        """Times of runtime calls; row -1 is a call that the trace does not hold."""
        calls = trace.calls
        if len(calls) == 0:
            return cls(thread=np.full(rows.size, -1, np.int32), at_ns=np.zeros(rows.size, np.int64), ns=ns)
        known = np.maximum(rows, 0)
        thread = np.where(rows >= 0, calls.thread[known], -1).astype(np.int32)
        return cls(thread=thread, at_ns=calls.start_ns[known], ns=ns)

    @classmethod
    def of_device(cls, trace: Trace, rows: NDArray[np.integer[Any]], ns: I64) -> Self:
        """Times of device rows, which belong to where they were launched."""
        return cls.of_calls(trace, trace.gpu.launch_row[rows], ns)

    @classmethod
    def of_ops(cls, trace: Trace, rows: NDArray[np.integer[Any]], ns: I64) -> Self:
        """Times of operators."""
        return cls(thread=trace.ops.thread[rows], at_ns=trace.ops.start_ns[rows], ns=ns)

    @classmethod
    def of_host(cls, code: Code, threads: Iterable[int], times: Intervals) -> Self:
        """Times of threads, each cut where the thread goes from one frame or operator to the next."""
        pieces = [(thread, *code.during(thread, times)) for thread in threads]
        at: list[I64] = [np.empty(0, np.int64), *(each for _, each, _ in pieces)]
        ns: list[I64] = [np.empty(0, np.int64), *(each for _, _, each in pieces)]
        thread = np.repeat(np.array([-1, *(each for each, _, _ in pieces)], np.int32), [each.size for each in at])
        return cls(thread=thread, at_ns=np.concatenate(at), ns=np.concatenate(ns))

    def __len__(self) -> int:
        return int(self.ns.size)

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            thread=np.concatenate((self.thread, other.thread)),
            at_ns=np.concatenate((self.at_ns, other.at_ns)),
            ns=np.concatenate((self.ns, other.ns)),
        )


def shares(code: Code, rows: Rows, most: int = MOST) -> tuple[PlaceShare, ...]:
    """The places of what these rows have, those with most of their time first."""
    total = int(rows.ns.sum())
    if total <= 0:
        return ()
    known = np.flatnonzero((rows.thread >= 0) & (rows.ns > 0))
    moments = code.at(rows.thread[known], rows.at_ns[known])
    has = np.flatnonzero(moments.place >= 0)
    ns, place, phase = rows.ns[known[has]], moments.place[has], moments.phase[has]
    module = moments.module[has]
    line = _lines(code.places)[place]
    spent = np.bincount(line, weights=ns).astype(np.int64) if line.size else np.empty(0, np.int64)
    out = []
    for one in np.argsort(-spent, kind="stable")[:most].tolist():
        if spent[one] < _LEAST * total:
            break
        mine = line == one
        out.append(
            PlaceShare(
                place=_with_module(code, place[mine], module[mine], ns[mine]),
                phase=Phase(int(np.bincount(phase[mine], weights=ns[mine]).argmax())),
                ns=int(spent[one]),
                share=min(int(spent[one]) / total, 1.0),
                count=int(mine.sum()),
                n_modules=distinct_codes(module[mine]).size,
            )
        )
    return tuple(sorted(out, key=lambda one: bool(one.place.inside) or one.share < _LEAST_FIRST))


def training_functions(code: Code) -> frozenset[tuple[str, str]]:
    """The files and functions that hold operators of the model, the backward pass or the optimizer."""
    trains = (code.phase_of_op != Phase.OTHER) & (code.place_of_op >= 0)
    found = [code.places[one] for one in distinct_codes(code.place_of_op[trains]).tolist()]
    return frozenset((one.file, one.function) for one in found)


def rows_of_places(code: Code, rows: Rows, told: Iterable[PlaceShare]) -> list[Rows]:
    """The rows that are summed up in each of these shares of them."""
    known = np.flatnonzero((rows.thread >= 0) & (rows.ns > 0))
    place = code.at(rows.thread[known], rows.at_ns[known]).place
    known, place = known[place >= 0], place[place >= 0]
    line = _lines(code.places)[place]
    first = {_line(one): number for number, one in zip(_lines(code.places).tolist(), code.places, strict=True)}
    out = []
    for share in told:
        mine = known[line == first.get(_line(share.place), -1)]
        out.append(Rows(thread=rows.thread[mine], at_ns=rows.at_ns[mine], ns=rows.ns[mine]))
    return out


def _lines(places: tuple[CodePlace, ...]) -> I64:
    """Per place the number of its line: places that differ only in what a sentence on them leaves out have one."""
    first: dict[CodePlace, int] = {}
    return np.array([first.setdefault(_line(place), len(first)) for place in places], np.int64)


def _line(place: CodePlace) -> CodePlace:
    """The place without its module, and of a line with its text without what is called there."""
    bare = replace(place, module="", defined=0 if place.line else place.defined)
    return replace(bare, call="") if place.text else bare


def _with_module(code: Code, place: NDArray[np.int32], module: NDArray[np.int32], ns: I64) -> CodePlace:
    """The place of some rows of one line, with what their modules have in common."""
    inner = [code.modules[one].name for one in distinct_codes(module).tolist()]
    spent = int(ns[module >= 0].sum())
    from profkit.timeline.code.modules import pattern  # only where there are frames, as all that it imports

    common = pattern(inner) if inner and 2 * spent >= int(ns.sum()) else ""
    return replace(code.places[int(np.bincount(place, weights=ns).argmax())], module=common)
