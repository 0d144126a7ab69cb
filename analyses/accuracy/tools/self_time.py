"""The rows of `key_averages()` sorted by self time, from the traces of a run: what one looks at without a tool."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

_HOST: Final = frozenset({"cpu_op", "user_annotation"})
_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_RULES: Final = (
    (re.compile(r"enumerate\(DataLoader\)|^data_loader$"), "data-bound"),
    (re.compile(r"^(gloo|nccl|mpi|ucc):|^c10d::|nccl(Dev)?Kernel", re.IGNORECASE), "comm-bound"),
    (re.compile(r"^Memcpy (HtoD|DtoH)"), "copy-bound"),
)
"""Which names stand for what; of the rest, operators and kernels stand for the work, ranges for Python."""


class Traces(msgspec.Struct, frozen=True):
    """The traces of a run as torch.profiler wrote them, by rank."""

    documents: tuple[dict[str, Any], ...]

    @property
    def has_device(self) -> bool:
        """Whether a device other than the CPU was recorded."""
        return any(event.get("cat") in _DEVICE for document in self.documents for event in document["traceEvents"])


class Row(msgspec.Struct, frozen=True):
    """A name, its share (0-1) of the steps as self time, and the bottleneck that it stands for."""

    name: str
    share: float
    word: str


def read(folder: Path) -> Traces:
    """The traces of a capture's timed window in a folder. Raises OSError or ValueError where one is damaged."""
    paths = sorted(folder.glob("*.pt.trace.json.gz"))
    return Traces(tuple(msgspec.json.decode(gzip.decompress(path.read_bytes())) for path in paths))


def rows(traces: Traces) -> list[Row]:
    """All names, the one with the most self time first; of the device where there is one, ranks added up."""
    wanted = _DEVICE if traces.has_device else _HOST
    total: defaultdict[str, float] = defaultdict(float)
    operators: set[str] = set()
    whole = 0.0
    for document in traces.documents:
        events = [event for event in document["traceEvents"] if event.get("ph") == "X" and "dur" in event]
        begin, end = window(events)
        whole += end - begin
        inside = [event for event in events if event.get("cat") in wanted and begin <= event["ts"] < end]
        operators.update(event["name"] for event in inside if event["cat"] != "user_annotation")
        for name, self_us in self_times(inside):
            total[name] += self_us
    names = sorted(total, key=lambda name: (-total[name], name))
    return [Row(name, min(total[name] / whole, 1.0) if whole else 0.0, word_of(name, operators)) for name in names]


def window(events: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """From the first marked step to the end of the last one, in us; without steps all."""
    ends = [(event["ts"], event["ts"] + event["dur"], _STEP.fullmatch(event["name"])) for event in events]
    of = [(start, end) for start, end, is_step in ends if is_step] or [(start, end) for start, end, _ in ends]
    return (min(start for start, _ in of), max(end for _, end in of)) if of else (0.0, 0.0)


def self_times(events: Iterable[dict[str, Any]]) -> list[tuple[str, float]]:
    """Each row's name and its time in us without that of the rows inside it on its thread; steps have one name."""
    found: list[tuple[str, float]] = []
    threads: defaultdict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    for of in threads.values():
        of.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_rows: list[tuple[float, int]] = []  # its end, its place in `found`
        for event in of:
            start, dur = event["ts"], event["dur"]
            while open_rows and open_rows[-1][0] <= start:
                open_rows.pop()
            if open_rows:
                name, self_us = found[open_rows[-1][1]]
                found[open_rows[-1][1]] = name, self_us - min(dur, open_rows[-1][0] - start)
            open_rows.append((start + dur, len(found)))
            found.append((_STEP.sub("ProfilerStep*", event["name"]), dur))
    return found


def word_of(name: str, operators: Iterable[str]) -> str:
    """The bottleneck that a name stands for."""
    for pattern, word in _RULES:
        if pattern.search(name):
            return word
    return "kernel-bound" if name in operators else "overhead-bound"
