"""Python stacks that torch 1.8 to 1.10 write with each operator, as Python frames.

"Call stack" of an operator is `file.py(46): function;...`, the innermost first, each with the line that runs. Later
versions write calls of functions as events of their own, and in such texts the lines where functions begin, a `;` at
the end and built-in functions: these are left alone.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.kineto.fields import Codes
from profkit.ingest.texts import LONGEST_TEXT

_KEY: Final = b'"Call stack"'
_EMPTY: Final = b'"Call stack": ""'
_CALLS: Final = b'"python_function"'
_FRAME: Final = re.compile(r"\(\d{1,9}\): (?=[^;])")
_INSTALLED: Final = re.compile(r"(?:site|dist)-packages/|/lib/python3|/torch/|^torch/")
_WRAPPERS: Final = re.compile(r"\): (?:_call_impl|__call__|wrapper|decorate_context|__enter__|__init__)$")
_ENTERS: Final = re.compile(r"torch/autograd/profiler\.py\(\d+\): ")
_IN_TORCH: Final = re.compile(r"torch/(?:utils/data|optim)/[^;]*$")
_TEXT: Final = msgspec.json.Decoder(str)
_MOST_FRAMES: Final = 64
"""Of a stack. Chosen: of these only the script's own stay, and what each calls."""


def _is_frame(name: str) -> bool:
    """Whether a text is a frame's: `train.py(12): step`."""
    return not name.startswith("<") and _FRAME.search(name, 1) is not None


def has_stacks(array: bytes) -> bool:
    """Whether a batch may hold such texts: some that are not empty, and more of them than end with `;`."""
    n_texts = array.count(_KEY)
    n_texts -= array.count(_EMPTY) if n_texts else 0
    return n_texts > 0 and _CALLS not in array and array.count(b';"') < n_texts


def stack_frames(args: list[Any], columns: Columns, strings: Codes) -> Columns:
    """The frames around operators with these arguments and times (in `columns`): a row for each, the outermost first.

    {} where no stacks of this kind were recorded.
    """
    known: dict[bytes, list[int]] = {b"": [], b'""': []}
    places: list[int] = []
    codes: list[int] = []
    for place, text in enumerate(map(bytes, map(attrgetter("call_stack"), args))):
        if text not in known:
            known[text] = [strings[name] for name in _frames(text)]
        codes += known[text]
        places += [place] * len(known[text])
    if not codes:
        return {}
    at = np.array(places, np.int64)
    times = {name: columns[name][at] for name in ("start_ns", "end_ns", "thread")}
    return {**times, "name": np.array(codes, np.int32)}


def _frames(written: bytes) -> list[str]:
    """The frames that are kept of a stack, the outermost first: those that no package has, and what each calls."""
    try:
        text = _TEXT.decode(written) if len(written) <= LONGEST_TEXT else ""
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    if text.endswith(";") or text.startswith("<"):
        return []
    names = text.split(";")
    if len(names) > _MOST_FRAMES or not all(map(_is_frame, names)):
        return []
    if _ENTERS.search(names[0]):
        names = _of_range(names)
    kept: list[str] = []
    calls = ""
    for name in names:
        if _INSTALLED.search(name):
            calls = calls if _WRAPPERS.search(name) and calls else name
            continue
        kept += [calls, name] if calls else [name]
        calls = ""
    return kept[::-1]


def _of_range(names: list[str]) -> list[str]:
    """The frames around a range, which goes on after the line that has begun it: none, but of torch's own loops.

    The script waits in one line for a batch and for an optimizer's step.
    """
    first = next((place for place, name in enumerate(names) if not _ENTERS.search(name)), len(names))
    return names[first:] if names[first:] and _IN_TORCH.search(names[first]) else []
