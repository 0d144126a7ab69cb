"""Files of other tools, told by their first bytes: what each is, and what opens it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

SQLITE_MAGIC: Final = b"SQLite format 3\x00"
_RECORD: Final = "pass the .json or .json.gz that torch.profiler wrote, or a folder of them"
_PERFETTO: Final = "https://ui.perfetto.dev opens it; profkit reads the .json that torch.profiler wrote of the same run"
_MOST_LOOKED_AT: Final = 4096
_MARKUP: Final = (b"<!doctype", b"<html", b"<?xml", b"<svg")
_CONTROL: Final = frozenset(range(9))  # no text holds these
_MARSHALLED_DICT: Final = (0x7B, 0xFB)  # {, and as Python 3.4 and later mark what is referred to
_MARSHALLED_TUPLE: Final = (0x28, 0x29, 0xA8, 0xA9)


class Foreign(msgspec.Struct, frozen=True):
    """What a file is, as the end of "it is ...", and the next act."""

    what: str
    hint: str = _RECORD


_BEGINNINGS: Final = (
    (
        SQLITE_MAGIC,
        Foreign("an SQLite database", "an nsys export? profkit triage reads those, by their path"),
    ),
    (b"\x7fELF", Foreign("a program (ELF)", "profkit run -- PROGRAM records what it does")),
    (b"%PDF", Foreign("a PDF document")),
    (b"\x89PNG", Foreign("a PNG image")),
    (b"\x93NUMPY", Foreign("a NumPy array")),
    (b"\x89HDF", Foreign("an HDF5 file")),
)
_PAGE: Final = Foreign("a page for a browser (HTML, XML or SVG)", "open it in a browser; " + _RECORD)
_PICKLE: Final = Foreign(
    "a Python pickle: a memory snapshot or a checkpoint",
    "profkit info FILE says what holds memory in a memory snapshot, https://pytorch.org/memory_viz draws it;"
    " profkit capture --memory records allocations in a trace",
)
_CHECKPOINT: Final = Foreign(
    "a PyTorch checkpoint",
    "profkit reads what torch.profiler wrote while it was trained: profkit run -- python train.py",
)
_ARRAYS: Final = Foreign("a ZIP archive of NumPy arrays")
_ARCHIVE: Final = Foreign("a ZIP archive", "unzip it; then profkit triage FOLDER")
_CPROFILE: Final = Foreign(
    "a profile of Python functions (cProfile)",
    "python -m pstats FILE shows it, snakeviz draws it; profkit run -- python train.py records steps",
)
_EVENTS: Final = Foreign(
    "an event file of TensorBoard (scalars and summaries)",
    "tensorboard --logdir FOLDER shows it; a profile beside it is named *.pt.trace.json",
)
_XPLANE: Final = Foreign("an XPlane profile of TensorFlow or JAX", "xprof or TensorBoard shows it")
_PFTRACE: Final = Foreign("a trace in Perfetto's own format", _PERFETTO)
_PROTOBUF: Final = Foreign("a binary protobuf, as Perfetto writes its traces", _PERFETTO)
_SPEEDSCOPE: Final = Foreign(
    "a flame graph for speedscope (py-spy and others)",
    "https://www.speedscope.app opens it; profkit run -- python train.py records steps",
)
_NOTEBOOK: Final = Foreign(
    "a Jupyter notebook",
    "give the file that its cell wrote: prof.export_chrome_trace('trace.json'), or profkit.capture.session()",
)
_CPUPROFILE: Final = Foreign("a CPU profile of Chrome or Node.js", "Chrome's DevTools or speedscope opens it")


def foreign(head: bytes, name: str) -> Foreign | None:
    """What a file is that begins so, by content first; None for what may be a trace."""
    for magic, known in _BEGINNINGS:
        if head.startswith(magic):
            return known
    if head.startswith(b"PK\x03\x04"):
        return _archive(head[:_MOST_LOOKED_AT], name)
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:
        return _PICKLE
    is_binary = not _CONTROL.isdisjoint(head[:64])
    if is_binary and head[0] in _MARSHALLED_DICT and head[1] in _MARSHALLED_TUPLE:
        return _CPROFILE
    if head.lstrip()[:16].lower().startswith(_MARKUP):
        return _PAGE
    if b"brain.Event:" in head[:64]:
        return _EVENTS
    return _protobuf(head, name)


def foreign_json(head: bytes, name: str) -> Foreign | None:
    """What JSON is that holds no events of a trace; None for what nobody knows."""
    start = head[:_MOST_LOOKED_AT]
    if b"speedscope.app/file-format-schema" in start:
        return _SPEEDSCOPE
    if b'"nbformat"' in head or b'"cell_type"' in start or (name.endswith(".ipynb") and b'"cells"' in start):
        return _NOTEBOOK
    if b'"nodes"' in start and b'"callFrame"' in start:
        return _CPUPROFILE
    return None


def _archive(head: bytes, name: str) -> Foreign:
    suffix = PurePath(name).suffix
    if b"/data.pkl" in head or suffix in {".pt", ".pth", ".ckpt", ".bin"}:
        return _CHECKPOINT
    return _ARRAYS if b".npy" in head else _ARCHIVE


def _protobuf(head: bytes, name: str) -> Foreign | None:
    """What begins with a field of a protobuf, which no text does: its length and its content are binary."""
    if name.endswith((".pftrace", ".perfetto-trace")) and head[:1] == b"\x0a":
        return _PFTRACE
    is_binary = head[:1] == b"\x0a" and not _CONTROL.isdisjoint(head[1:64])
    if is_binary and name.endswith((".xplane.pb", ".pb")):
        return _XPLANE
    return _PROTOBUF if is_binary else None
