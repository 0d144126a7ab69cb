"""Python frames of a trace: how they nest, whose they are, and which is innermost at a time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, distinct_codes, last_begun, looked_up, rows_by_value
from profkit.model.code import CodePlace
from profkit.model.table import NO_ROW
from profkit.model.trace import PythonFrames, Trace

MODULE: Final = "nn.Module: "
"""How the name of a frame begins that stands for a call of a module."""
_FRAME: Final = re.compile(r"^(?P<file>[^<].*?)\((?P<line>-?\d{1,9})\): (?P<function>.+)$", re.DOTALL)
_GENERATED: Final = re.compile(r"torchinductor_|/torch_compile_debug/")
_INSTALLED: Final = re.compile(r"site-packages/|dist-packages/|/lib/python3|^<frozen ")
_IMPORTED: Final = """
IPython PIL _pytest absl accelerate aiter apex bitsandbytes cv2 datasets debugpy deepspeed diffusers dill
einops filelock flash_attn flashinfer fsspec functorch huggingface_hub hydra ipykernel jaxtyping joblib
lightning lightning_fabric loguru matplotlib numpy nvtx omegaconf packaging pandas peft profkit psutil pytest
pytorch_lightning ray regex safetensors scipy sklearn tensorboard timm tokenizers torch torch_guard torchaudio
torchdata torchgen torchmetrics torchtext torchvision tornado tqdm traitlets transformers triton
typing_extensions wandb webdataset xformers yaml zmq
"""
_PACKAGES: Final = frozenset(_IMPORTED.split())
"""Top-level packages that a training script uses and does not edit. Chosen: torch's own and what scripts import most.
The profiler cuts the folder of `sys.path` off a file's path: an installed package looks like the user's."""
_STANDARD: Final = """
asyncio collections compression concurrent ctypes curses dbm email encodings ensurepip html http importlib
json logging multiprocessing pathlib pydoc_data re sqlite3 string sysconfig tkinter tomllib unittest urllib
venv wsgiref xml xmlrpc zipfile zoneinfo
"""
_STANDARD_FOLDERS: Final = frozenset(_STANDARD.split())
_WRAPPERS: Final = frozenset(("wrapper", "decorate_context", "_use_grad", "_fn", "inner", "compile_wrapper"))
"""Functions of torch that only call another one."""
PARTS: Final = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_TORCH: Final = frozenset(("torch", "triton", "functorch", "torchgen", "profkit", "numpy", "typing_extensions"))
_OF_TORCH: Final = re.compile(
    r"/lib/python3[^/]*/(?!(?:site|dist)-packages)|-packages/(?:torch|triton|functorch|numpy)/"
)
"""Files of the standard library and of torch, by their whole paths."""
_BEGUN_NS: Final = 1_000_000
"""From the first frame on: frames that begin then and lie inside each other were running already. Chosen: on this
project's captures they begin within 10 us."""
_MOST_JUMPS: Final = 64
"""Rounds of pointer doubling: 2^64 levels."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a Python frame says."""

    file: str
    line: int
    function: str
    is_own: bool
    """Whether it is the user's own code."""
    is_generated: bool = False
    """Whether torch.compile wrote the file."""

    @property
    def shown(self) -> str:
        """`step() (train.py:60)`."""
        return CodePlace(file=self.file, function=self.function, defined=self.line).name


class Frames(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of a trace, row by row of `Trace.python`, with what lies around each; `NO_ROW` for none."""

    rows: PythonFrames
    parent: I64
    own: I64
    """The innermost frame of the user's own, itself included."""
    called: I64
    """The frame that `own` calls on the way here; `NO_ROW` for an own frame itself."""
    callee: I64
    """The same behind torch's wrappers (of `step`, of a module's call): what the user's code calls by name."""
    module: I64
    """The innermost frame of a module, itself included."""
    library: I64
    """The innermost frame of an installed package other than torch, itself included."""
    generated: I64
    """The innermost frame of a file that torch.compile wrote, itself included."""
    is_early: Bool
    """Whether it was already running when the recording of its thread began: its line is then not its definition."""
    innermost: Mapping[int, tuple[I64, I64]]
    """Thread to (times at which its innermost frame changes, sorted; the row from each time on)."""

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> I64:
        """For each (thread, time): the row of the innermost frame running there, `NO_ROW` for none."""
        return last_begun(self.innermost, thread, at_ns)


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of lines: by code of a name its frame, per frame the line that called it, texts by "file:line"."""

    named: Mapping[int, Frame]
    line: I64
    """0 where it is not known."""
    texts: Mapping[str, Any]

    def text(self, frame: Frame, line: int) -> str:
        """What stands in a line of the file of a frame, "" where that is not known."""
        text = self.texts.get(f"{frame.file}:{line}") if line else None
        return text.strip() if isinstance(text, str) else ""


def lines_of(trace: Trace, frames: Frames, named: Mapping[int, Frame]) -> Lines:
    """What the capture recorded of lines (`profkit_call_lines`, `profkit_source_lines`), by the frames of names."""
    texts = trace.meta.metadata.get("profkit_source_lines")
    return Lines(named=named, line=_call_lines(trace, frames), texts=texts if isinstance(texts, Mapping) else {})


def _call_lines(trace: Trace, frames: Frames) -> I64:
    """Per frame the line that called it: recorded are when each frame began, ns of Unix, and its caller's line then."""
    told = trace.meta.metadata.get("profkit_call_lines")
    out = np.zeros(len(frames.rows), np.int64)
    if not isinstance(told, Mapping):
        return out
    try:
        at, line = (np.array(told[key], np.int64) for key in ("unix_ns", "line"))
    except (KeyError, TypeError, ValueError, OverflowError):
        return out
    if at.ndim != 1 or at.shape != line.shape or at.size == 0:
        return out
    order = np.lexsort((line, at))
    twice = np.flatnonzero((at[order[1:]] == at[order[:-1]]) & (line[order[1:]] != line[order[:-1]]))
    line[order[np.concatenate((twice, twice + 1))]] = 0  # one call inside another, both begun in one nanosecond
    begun = frames.rows.start_ns + trace.origin_unix_ns
    place = np.minimum(np.searchsorted(at[order], begun), at.size - 1)
    found = order[place]
    known = (at[found] == begun) & (line[found] > 0)
    out[known] = line[found][known]
    return out


def frames_of(trace: Trace) -> tuple[Frames, dict[int, Frame]]:
    """The frames of a trace with what lies around each, and by code of a name what that name says."""
    rows, metadata = trace.python, trace.meta.metadata
    codes = distinct_codes(rows.name).tolist()
    named = {code: frame for code in codes if (frame := read_frame(trace.name(code), metadata)) is not None}

    def marked(chosen: list[int]) -> Bool:
        """Which rows have one of these names: looked up, as of thousands of modules each would be compared."""
        marks = np.zeros(len(trace.strings), np.bool_)
        marks[chosen] = True
        return marks[rows.name]

    def has(is_so: Callable[[Frame], bool]) -> Bool:
        return marked([code for code, frame in named.items() if is_so(frame)])

    by_time, since, is_early = _nested(rows)
    parent = _by_id(rows, by_time)
    is_own = has(lambda frame: frame.is_own)
    is_own &= ~(has(_is_part) & looked_up(is_own, parent, none=False))  # the line around it has it
    own = nearest(is_own, parent)
    frames = Frames(
        rows=rows,
        parent=parent,
        own=own,
        called=_called(parent, is_own, own),
        callee=_called(parent, is_own, own, has(_wraps)),
        module=nearest(marked([code for code in codes if trace.name(code).startswith(MODULE)]), parent),
        library=nearest(has(_is_library), parent),
        generated=nearest(has(lambda frame: frame.is_generated), parent),
        is_early=is_early,
        innermost=since,
    )
    return frames, named


def _called(parent: I64, is_own: Bool, own: I64, is_wrapper: Bool | None = None) -> I64:
    """The frame that the innermost own frame calls, on the way to each; wrappers count as part of what they wrap."""
    caller, marked = parent, ~is_own
    if is_wrapper is not None:
        caller = looked_up(nearest(~is_wrapper, parent), parent)
        marked &= ~is_wrapper
    marked &= looked_up(is_own, caller, none=False)
    called = nearest(marked, parent)
    called[is_own | (called < own)] = NO_ROW  # what another own frame calls, further out
    return called


def _is_library(frame: Frame) -> bool:
    """Whether a frame is of an installed package that is not torch itself."""
    if frame.is_own or frame.is_generated or frame.file.startswith("<"):
        return False
    package, is_standard = _package(frame.file)
    return not is_standard and package not in _TORCH and not _OF_TORCH.search(frame.file)


def _package(file: str) -> tuple[str, bool]:
    """What a file is of by the first part of its path, and whether that is Python's own."""
    head, slash, _ = file.partition("/")
    package = head.removesuffix(".py")
    return package, package in (_STANDARD_FOLDERS if slash else sys.stdlib_module_names)


def _is_part(frame: Frame) -> bool:
    """Whether a frame is a comprehension: a part of the line that it stands in, and no function to its reader."""
    return frame.function in PARTS


def _wraps(frame: Frame) -> bool:
    """Whether a frame is one of torch's around a function of the user's or of its own, or a comprehension."""
    return _is_part(frame) or (frame.function in _WRAPPERS and frame.file.startswith(("torch/", "contextlib.py")))


def read_frame(name: str, metadata: Mapping[str, Any]) -> Frame | None:
    """What a frame's name says; None for a built-in function or a module."""
    match = _FRAME.match(name)
    if match is None or name.startswith(MODULE):
        return None
    file = match["file"].replace("\\", "/")
    is_generated = _GENERATED.search(file) is not None
    return Frame(
        file=file,
        line=max(int(match["line"]), 0),
        function=match["function"],
        is_own=not is_generated and is_own_file(file, metadata),
        is_generated=is_generated,
    )


def is_own_file(file: str, metadata: Mapping[str, Any]) -> bool:
    """Whether a file is the user's: in no installed package and not of the standard library.

    A capture with stacks names the user's files (`profkit_user_files`); else they are told by what they are called.
    """
    own = metadata.get("profkit_user_files")
    if isinstance(own, list) and own:
        return file in own
    if _INSTALLED.search(file) or file.startswith("<"):
        return False
    package, is_standard = _package(file)
    return file.startswith("/") or (package not in _PACKAGES and not is_standard)


def nearest(marked: Bool, parent: I64) -> I64:
    """For each row the nearest marked one among itself and those around it, `NO_ROW` for none.

    By doubling of pointers: as many rounds as the depth has binary digits.
    """
    jump = np.where(marked, np.arange(marked.size), parent)
    if not marked.any():
        jump[:] = NO_ROW
        return jump
    open_ = np.flatnonzero(jump >= 0)
    for _ in range(_MOST_JUMPS):
        open_ = open_[~marked[jump[open_]]]
        if open_.size == 0:
            return jump
        jump[open_] = jump[jump[open_]]
        open_ = open_[jump[open_] >= 0]
    jump[open_] = NO_ROW  # a circle, which only a made-up file has
    return jump


def _nested(rows: PythonFrames) -> tuple[I64, dict[int, tuple[I64, I64]], Bool]:
    """By time: the frame around each, when the innermost of a thread changes, and which ran before the recording.

    A frame lies inside the last one begun before it that ends no earlier.
    """
    parent, since = np.full(len(rows), NO_ROW, np.int64), {}
    is_early = np.zeros(len(rows), np.bool_)
    begin = int(rows.start_ns.min()) if len(rows) else 0
    for thread, found in rows_by_value(rows.thread):
        start, end = rows.start_ns[found], rows.end_ns[found]
        is_later, is_inner = start[1:] > start[:-1], (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
        mine = found if (is_later | is_inner).all() else found[np.lexsort((-end, start))]
        start, end = rows.start_ns[mine], rows.end_ns[mine]
        around = enclosing(end)
        parent[mine] = looked_up(mine, around)
        is_early[mine] = np.logical_and.accumulate(around == np.arange(-1, mine.size - 1))
        is_early[mine] &= start - begin < _BEGUN_NS
        since[int(thread)] = _changes(start, end, np.append(mine, NO_ROW), around)
    return parent, since, is_early


def enclosing(end: I64) -> I64:
    """For ranges by start, the longer first: the place of the last before each that ends no earlier, -1 for none."""
    before = np.arange(-1, end.size - 1, dtype=np.int64)
    open_ = np.flatnonzero(before >= 0)
    while (open_ := open_[end[before[open_]] < end[open_]]).size:
        before[open_] = before[before[open_]]
        open_ = open_[before[open_] >= 0]
    return before


def _changes(start: I64, end: I64, row: I64, around: I64) -> tuple[I64, I64]:
    """When the innermost of nested ranges changes, and its row from then on; at one time the last change holds."""
    real = np.flatnonzero(end > start)
    times = np.concatenate((end[real][::-1], start[real]))
    who = np.concatenate((row[around[real]][::-1], row[:-1][real]))
    order = np.argsort(times, kind="stable")
    times, who = times[order], who[order]
    last = np.append(times[1:] != times[:-1], True)[: times.size]
    return times[last], who[last]


def _by_id(rows: PythonFrames, by_time: I64) -> I64:
    """The frame around each by the ids that the profiler gave them, where the trace has both; else by time."""
    ids, parents = rows.frame_id, rows.parent_id
    if not (parents >= 0).any():
        return by_time
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], parents), order.size - 1)
    found = order[place]
    is_known = (parents >= 0) & (ids[found] == parents) & (found != np.arange(order.size))
    is_known &= rows.start_ns[found] <= rows.start_ns
    return np.where(is_known, found, by_time)
