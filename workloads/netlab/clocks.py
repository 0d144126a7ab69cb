"""Traces as hosts with clocks of their own would have written them: moved by an offset, and by a drift."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final

_BASE: Final = re.compile(r'("baseTimeNanoseconds":\s*)(-?\d+)')
_TIME: Final = re.compile(r'("ts":\s*)"?(-?\d+(?:\.\d+)?)"?')
_RANK: Final = re.compile(r"rank(\d+)[^/]*\.json\.gz")


def shifted(text: str, *, offset_ns: int, in_base: bool = True) -> str:
    """A Kineto trace whose clock shows `offset_ns` more.

    `in_base`: the offset goes into the base time, as where hosts start their clocks apart; else into each time. It
    edits the text: reading and writing the JSON would send nanoseconds through float64. Raises ValueError for a trace
    without what is to be moved.
    """
    pattern = _BASE if in_base else _TIME
    more = Decimal(offset_ns) if in_base else Decimal(offset_ns) / 1000
    moved, n_moved = pattern.subn(lambda found: f"{found[1]}{Decimal(found[2]) + more}", text)
    if not n_moved:
        raise ValueError(f"the trace has no {'base time' if in_base else 'times'}")
    return moved


def set_apart(captured: Path, target: Path, offsets_ns: Mapping[int, int], *, in_base: bool = True) -> list[Path]:
    """Write the traces of a capture to `target` with these ranks' clocks moved; gives the files.

    Of the manifest it leaves out nothing: it has no times of day. The second windows' traces move with the first.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(captured.iterdir()):
        found = _RANK.fullmatch(path.name)
        offset = offsets_ns.get(int(found[1]), 0) if found else 0
        data = path.read_bytes()
        if offset:
            text = shifted(gzip.decompress(data).decode(), offset_ns=offset, in_base=in_base)
            json.loads(text)
            data = gzip.compress(text.encode(), mtime=0)
        (target / path.name).write_bytes(data)
        if found:
            written.append(target / path.name)
    return written
