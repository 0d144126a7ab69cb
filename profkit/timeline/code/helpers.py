"""What a capture says of who works beside the training thread: workers of a DataLoader, other threads of Python.

Of a loader whose batches the recorded steps took, its code and how long a batch takes; of threads, what they ran, held
and were awaited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from profkit.model.code import OF_THREAD, OF_WORKERS, CodePlace, Phase, PlaceShare
from profkit.model.trace import MOST_LISTED, Trace
from profkit.shell import clean
from profkit.units import format_ns

_LONGEST: Final = 80
_LONGEST_LINE: Final = 160
_LONGEST_TEXT: Final = 4096
_MOST_NS: Final = 10**15
_MOST_LINES: Final = 5
_LEAST: Final = 0.01
"""Share of the workers' time from which a line is told. Chosen, as of other places."""
_LEAST_LOOKS_OF_LINE: Final = 3
"""Looks from which one line is told. Chosen: fewer are chance."""
_BESIDE: Final = 1.5
"""Steps for each batch of a loader from which the loop takes its batches from elsewhere. Chosen."""
_FEW: Final = 2
"""Batches of a pass up to which it is a look at the data. Chosen."""
_LEAST_SAMPLES: Final = 32
"""Samples of a worker from which runs for each are a ratio. Chosen."""
_LEAST_SHARING: Final = 2
"""Of one worker nobody can tell what all should share."""
_OFTEN: Final = 0.5
"""Runs of a line for each sample, from which it is of the samples and not of a file (chosen)."""
_NEAR: Final = 0.15
"""By how much runs for a sample may be off the number of workers (chosen: files differ)."""
_LEAST_LOOKS: Final = 20
"""Looks at the workers' stacks from which lines are told. Chosen: half of the time is then 28 to 72 % (95 %)."""
_LEAST_LOOKS_OF_THREAD: Final = 6
"""From which a thread's hold on the lock is told. Chosen."""


class LoaderCode(msgspec.Struct, frozen=True):
    """The user's own functions behind a loader with workers, "" and 0 where they are not known."""

    reads: str = ""
    """`Images.__getitem__() (train.py:12)`."""
    collates: str = ""
    fetch_ns: int = 0
    """The median time that a worker takes to make a batch."""
    lines: tuple[PlaceShare, ...] = ()
    """On which lines workers spend that time, the one with most of it first."""

    @property
    def words(self) -> str:
        """Who makes the batches, for how long; "" where nothing is known."""
        functions = " and ".join(filter(None, (self.reads, self.collates)))
        run = f"they run {functions}" if functions else ""
        takes = f"one of them takes {format_ns(self.fetch_ns)} for a batch (median)" if self.fetch_ns else ""
        return ", ".join(filter(None, (run, takes)))


def loader_code(trace: Trace) -> LoaderCode:
    """What the capture noted; nothing where the steps took batches of several loaders."""
    with_workers = [one for one in trace.meta.listed("profkit_loaders") if whole_ns(one.get("n_workers"))]
    if len(with_workers) != 1:
        return LoaderCode()
    one = with_workers[0]
    fetch_ns = whole_ns(trace.meta.metadata.get("profkit_worker_fetch_ns"))
    lines = looked_lines(trace.meta.metadata.get("profkit_worker_lines"))
    return LoaderCode(_place(one.get("dataset")), _place(one.get("collate")), fetch_ns, lines)


def is_by_index(trace: Trace) -> bool:
    """Whether the loaders whose batches the steps took are known to read datasets of the script's own by index."""
    found = [_place(one.get("dataset")) for one in trace.meta.listed("profkit_loaders")]
    return bool(found) and all("__getitem" in one for one in found)


def workers_busy(trace: Trace) -> float | None:
    """The share (0-1) of their time in which loader workers fetch, as the capture noted it."""
    told = trace.meta.metadata.get("profkit_workers_busy")
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told <= 1 else None


class Worker(msgspec.Struct, frozen=True):
    """One worker process of a DataLoader in the recorded steps."""

    number: int
    n_batches: int
    fetch_ns: int
    """The median time that it takes to make a batch."""


def workers(trace: Trace) -> tuple[Worker, ...]:
    """Those that made batches, as the capture noted them, by their numbers."""
    found = [
        Worker(whole_ns(one.get("worker")), whole_ns(one.get("n")), whole_ns(one.get("ns")))
        for one in trace.meta.listed("profkit_workers")
    ]
    return tuple(sorted((one for one in found if one.n_batches and one.fetch_ns), key=lambda one: one.number))


class Restarts(msgspec.Struct, frozen=True):
    """How often workers of a loader were started anew in the run so far, after the first time."""

    n_workers: int
    n: int
    ns: int
    """What all of that took from the loop: starts, first batches, and the end of the workers before."""
    n_batches: int
    """Those between the starts."""
    is_rebuilt: bool
    """Whether each time the loader itself is another one."""
    n_steps: int = 0
    """Steps of the script between the starts; 0 where that is not known."""

    @property
    def is_beside(self) -> bool:
        """Whether the loop takes a batch of it every so many steps alone: a look at other data."""
        return self.n_steps >= _BESIDE * self.n_batches and self.n_batches <= _FEW * self.n


def restarts(trace: Trace) -> Restarts | None:
    """Of the loader whose restarts took longest; None where none was passed over twice."""
    found = [
        Restarts(
            whole_ns(one.get("n_workers")),
            whole_ns(one.get("starts")),
            whole_ns(one.get("ns")),
            whole_ns(one.get("batches")),
            one.get("is_rebuilt") is True,
            whole_ns(one.get("steps")),
        )
        for one in trace.meta.listed("profkit_worker_starts")
    ]
    return max((one for one in found if one.n and one.ns and one.n_batches), key=lambda one: one.ns, default=None)


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """What each worker of an iterable dataset does for the samples of all, as it seems: it runs that much too often."""

    place: CodePlace
    """The line that takes most of it."""
    times: float
    """Runs of that line for each sample that the worker gives."""
    n_workers: int
    share: float
    """Of the workers' time (0-1), what lies at all such lines."""


def repeated(trace: Trace) -> Repeated | None:
    """Where all that runs before a sample is given runs as many times for it as there are workers; else None."""
    looked = trace.meta.metadata.get("profkit_worker_lines")
    told = looked.get("stream") if isinstance(looked, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(told.get("lines"), list):
        return None
    n, n_workers, all_ns = (whole_ns(told.get(key)) for key in ("n_samples", "n_workers", "ns"))
    if n < _LEAST_SAMPLES or n_workers < _LEAST_SHARING or not all_ns:
        return None
    often: list[tuple[PlaceShare, float]] = []
    for one in told["lines"][:MOST_LISTED]:
        line = _line(one, all_ns, OF_WORKERS)
        times = whole_ns(one.get("runs")) / n if line is not None else 0.0
        if line is None or times < _OFTEN:
            continue
        if abs(times - n_workers) <= _NEAR * n_workers:
            often.append((line, times))
        elif abs(times - 1) > _NEAR or not whole_ns(one.get("given")):  # what gives samples gives these alone
            return None
    if not often:
        return None
    first, times = max(often, key=lambda one: one[0].ns)
    return Repeated(place=first.place, times=times, n_workers=n_workers, share=min(sum(x.share for x, _ in often), 1.0))


def looked_lines(told: Any, *, of: str = OF_WORKERS) -> tuple[PlaceShare, ...]:
    """What a capture saw workers, or another thread, do; nothing where it looked too rarely."""
    lines = told.get("lines") if isinstance(told, Mapping) else None
    seen_ns = whole_ns(told.get("seen_ns")) if isinstance(lines, list) else 0
    if not seen_ns or not isinstance(lines, list) or whole_ns(told.get("n_looks")) < _LEAST_LOOKS:
        return ()
    alike: dict[CodePlace, PlaceShare] = {}
    for share in (share for one in lines if (share := _line(one, seen_ns, of)) is not None):
        key = replace(share.place, call="") if share.place.text else share.place  # the call is left out of its words
        alike[key] = _both(alike[key], share) if key in alike else replace(share, place=key)
    found = [one for one in alike.values() if one.share >= _LEAST and one.count >= _LEAST_LOOKS_OF_LINE]
    return tuple(sorted(found, key=lambda share: -share.ns)[:_MOST_LINES])


def _both(one: PlaceShare, other: PlaceShare) -> PlaceShare:
    """One line that makes several calls."""
    return replace(one, ns=one.ns + other.ns, share=min(one.share + other.share, 1.0), count=one.count + other.count)


def _line(told: Any, seen_ns: int, of: str) -> PlaceShare | None:
    if not isinstance(told, Mapping):
        return None
    texts = {key: told.get(key) for key in ("file", "function", "text", "call")}
    numbers = {key: whole_ns(told.get(key)) for key in ("line", "defined", "ns", "n_looks")}
    if not all(isinstance(text, str) for text in texts.values()) or not numbers["ns"]:
        return None
    is_function = told.get("line") == 0 and bool(numbers["defined"])  # one of several lines of it
    if not numbers["line"] and not is_function:
        return None
    file, function, text, call = (clean(str(value)[:_LONGEST_TEXT]) for value in texts.values())
    place = CodePlace(
        file=file,
        function=function[:_LONGEST],
        defined=numbers["defined"],
        line=numbers["line"],
        text=text[:_LONGEST_LINE],
        call=call[:_LONGEST],
    )
    share = min(numbers["ns"] / seen_ns, 1.0)
    return PlaceShare(
        place=place,
        phase=Phase.OTHER,
        ns=numbers["ns"],
        share=share,
        count=numbers["n_looks"],
        n_modules=0,
        of=of,
    )


def _place(told: Any) -> str:
    if not isinstance(told, Mapping):
        return ""
    name, file, line = told.get("name"), told.get("file"), whole_ns(told.get("line"))
    if not isinstance(name, str) or not isinstance(file, str) or not line:
        return ""
    place = CodePlace(file=file[:_LONGEST_TEXT], function=name[:_LONGEST].rpartition("<locals>.")[2], defined=line)
    return clean(place.name)


def whole_ns(value: Any) -> int:
    """A time or a count as a capture wrote it; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_NS else 0


class PythonThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread, over the recorded steps."""

    name: str
    run_ns: int
    wait_ns: int
    """It was ready, and had no core."""
    awaited_ns: int
    """The training thread waited for batches that it put into a queue."""
    held_share: float = 0.0
    """Of the time (0-1) that in which looks had to wait while it held the lock of Python."""
    idle_share: float = 0.0
    """Of that time (0-1), it had nothing to do."""
    lines: tuple[PlaceShare, ...] = ()
    """Where it was else, as shares of what it did."""

    @property
    def shown(self) -> str:
        """Its name in quotes."""
        return f'"{self.name}"'


def python_threads(trace: Trace) -> tuple[PythonThread, ...]:
    """Those that have run, the one that ran longest first."""
    found = [_thread(one) for one in trace.meta.listed("profkit_threads") if isinstance(one.get("name"), str)]
    return tuple(sorted(found, key=lambda one: -one.run_ns))


def _thread(told: Mapping[str, Any]) -> PythonThread:
    looked: Any = told.get("looked")
    looked = looked if isinstance(looked, Mapping) else {}
    idle_ns, seen_ns = whole_ns(looked.get("idle_ns")), whole_ns(looked.get("seen_ns"))
    held = looked.get("held_share")
    is_known = isinstance(held, float) and 0 <= held <= 1 and whole_ns(looked.get("n_looks")) >= _LEAST_LOOKS_OF_THREAD
    return PythonThread(
        name=clean(str(told["name"])[:_LONGEST]),
        run_ns=whole_ns(told.get("run_ns")),
        wait_ns=whole_ns(told.get("wait_ns")),
        awaited_ns=whole_ns(told.get("awaited_ns")),
        held_share=held if is_known else 0.0,
        idle_share=idle_ns / (idle_ns + seen_ns) if idle_ns else 0.0,
        lines=looked_lines(looked, of=OF_THREAD),
    )
