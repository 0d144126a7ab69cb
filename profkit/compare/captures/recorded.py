"""The shapes that operators work on, read from the first part of a trace file: a reader of traces leaves out views."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import read_chunks

Shapes = dict[str, float]
"""The mean number of elements of each input of an operator, by operator and place: `aten::mm 0`."""
_SHAPES_BYTES: Final = 4 * 2**20
_MAX_CHUNKS: Final = 8  # some 50,000 operators with shapes
_WITH_SHAPES: Final = b'"Input Dims"'
_OPERATOR: Final = re.compile(
    rb'"name": ?"(aten::\w{1,100})"[^{}]{0,400}"args": ?\{[^{}]{0,6000}?"Input Dims": ?(\[[\[\]0-9, ]{0,2000}\])'
)
_TENSOR: Final = re.compile(rb"\[([0-9, ]{0,200})\]")
_MAX_DIGITS: Final = 12
_BATCH_FIRST: Final = {
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "batch_norm", "group_norm", "max_pool2d", "scaled_dot_product_attention"), 0
    ),
    "embedding": 1,
}
"""The input of an operator whose first dimension is the batch, whatever the model."""


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of the inputs of operators."""

    shapes: Shapes = {}
    batch: int = 0
    """Samples in a batch: the usual first dimension where that is the batch; 0 where no such operator was recorded."""


def recorded_inputs(source: str) -> Inputs:
    """The shapes in the first part of a trace file; empty where none were recorded."""
    if not Path(source).is_file():
        return Inputs()
    calls: Counter[tuple[bytes, bytes]] = Counter()
    try:
        for number, chunk in enumerate(
            islice(read_chunks(Path(source), source=source, chunk_bytes=_SHAPES_BYTES), _MAX_CHUNKS)
        ):
            if number == 0 and _WITH_SHAPES not in chunk:
                return Inputs()
            calls.update(_OPERATOR.findall(chunk))
    except ProfkitError:  # the reader has said what is wrong with the file
        return Inputs()
    return Inputs(shapes=_means(calls), batch=_batch(calls))


def _batch(calls: Counter[tuple[bytes, bytes]]) -> int:
    found: Counter[int] = Counter()
    for (name, dims), n_calls in calls.items():
        place = _BATCH_FIRST.get(name.decode().removeprefix("aten::"))
        tensors = _TENSOR.findall(dims) if place is not None else []
        if place is not None and place < len(tensors):
            first = tensors[place].partition(b",")[0].strip()
            if 0 < len(first) <= _MAX_DIGITS:
                found[int(first)] += n_calls
    return found.most_common(1)[0][0] if found else 0


def _means(calls: Counter[tuple[bytes, bytes]]) -> Shapes:
    elements: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for (name, dims), n_calls in calls.items():
        for place, tensor in enumerate(_TENSOR.findall(dims)):
            sizes = tensor.replace(b" ", b"").split(b",")
            if all(0 < len(size) <= _MAX_DIGITS for size in sizes):
                key = f"{name.decode()} {place}"
                elements[key] = elements.get(key, 0.0) + n_calls * float(math.prod(map(int, sizes)))
                counts[key] += n_calls
    return {key: total / counts[key] for key, total in elements.items() if total > 0}
