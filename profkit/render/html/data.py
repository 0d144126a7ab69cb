"""The data block of a page: what its script draws, as bytes that compress well (docs/html.md, section "Data").

Columns of integers are split into planes, the bytes of equal significance together, and deflated: four bytes an
interval in the file, where JSON has ten.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.budget import label
from profkit.model.documents.tracks import CATEGORIES, Curve, Proof, Track, Tracks, WorkRow
from profkit.render.words.keys import keyed

VERSION: Final = 1
_TIME_BYTES: Final = 6
"""Of a time: 78 hours of nanoseconds, both ways."""
_NAME_BYTES: Final = 4
_VALUE_BYTES: Final = 8
_LEVEL: Final = 3
"""isal's highest. Chosen: once measured, it takes a sixth of the time of zlib's level 6, for a sixth more bytes."""
_OTHER_LABELS: Final = {
    "comm_hidden": "communication under compute",
    "copy_hidden": "copies beside other work",
    "host": "on the host",
    "step": "step",
    "module": "module",
    "wait": "waiting for the last rank",
}
WORK_COLUMNS: Final = (
    "kind", "name", "op", "shape", "module", "line", "n", "total_ns", "self_ns", "max_ns", "flops", "bytes",
)  # fmt: skip


def meta_of(ranks: Sequence[Tracks], *, is_cpu: bool) -> dict[str, Any]:
    """What describes the rows: names, keys, proofs, the table of work; plain values."""
    n_rows, n_points, told = 0, 0, []
    shifts = shifts_of(ranks)
    for one, shift in zip(ranks, shifts, strict=True):
        low = one.window_ns[0]
        rows, curves = [], []
        for track in one.tracks:
            rows.append(_row(track, n_rows))
            n_rows += len(track)
        for curve in one.curves:
            curves.append(_curve(curve, n_points))
            n_points += int(curve.at_ns.size)
        told.append(
            {
                "label": "" if one.rank is None else f"rank {one.rank}",
                "rank": one.rank,
                "window_ns": list(one.window_ns),
                "shift_ns": shift,
                "names": one.names,
                "tracks": rows,
                "curves": curves,
                "proofs": {proof.key: _proof(proof, low) for proof in one.proofs},
                "work": {"columns": WORK_COLUMNS, "rows": [_work(row) for row in one.work], "n_all": one.n_work},
                **keyed(one, "peak_flops peak_bytes"),
            }
        )
    labels = {name: _OTHER_LABELS.get(name) or label(name, is_cpu=is_cpu) for name in CATEGORIES}
    return {"version": VERSION, "categories": CATEGORIES, "labels": labels, "ranks": told}


def safe_json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = msgspec.json.encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def block_of(ranks: Sequence[Tracks]) -> str:
    """All rows and curves, deflated, as base64: none of its characters can end the element it stands in."""
    rows = [(track, one.window_ns[0]) for one in ranks for track in one.tracks]
    curves = [(curve, one.window_ns[0]) for one in ranks for curve in one.curves]
    parts = [
        np.array([sum(len(track) for track, _ in rows)], "<u4").tobytes(),
        _planes([_steps(track.start_ns, low) for track, low in rows], _TIME_BYTES),
        _planes([track.end_ns - track.start_ns for track, _ in rows], _TIME_BYTES),
        _planes([track.name for track, _ in rows], _NAME_BYTES),
        _planes([track.category for track, _ in rows], 1),
        np.array([sum(curve.at_ns.size for curve, _ in curves)], "<u4").tobytes(),
        _planes([_steps(curve.at_ns, low) for curve, low in curves], _TIME_BYTES),
        _planes([curve.value for curve, _ in curves], _VALUE_BYTES),
    ]
    return base64.b64encode(isal_zlib.compress(b"".join(parts), _LEVEL)).decode()


def _steps(at_ns: I64, low: int) -> I64:
    """Each time less the one before it; the first less the beginning of the window."""
    return np.diff(at_ns, prepend=low)


def _planes(columns: Sequence[NDArray[np.integer[Any]]], n_bytes: int) -> bytes:
    """The lowest `n_bytes` bytes of each value in two's complement: all lowest bytes, then the next ones."""
    if not columns:
        return b""
    column = np.concatenate(columns).astype("<i8")
    return np.ascontiguousarray(column.view(np.uint8).reshape(-1, 8)[:, :n_bytes].T).tobytes()


def _row(track: Track, first: int) -> dict[str, Any]:
    found = keyed(track, "key label group role=role.value")
    return {**found, "first": first, "n": len(track), "is_reduced": track.is_reduced}


def _curve(curve: Curve, first: int) -> dict[str, Any]:
    return {**keyed(curve, "key label unit"), "first": first, "n": int(curve.at_ns.size)}


def _proof(proof: Proof, low: int) -> dict[str, Any]:
    spans = np.stack((proof.start_ns - low, proof.end_ns - proof.start_ns), axis=1)
    return {**keyed(proof, "label tracks category"), "spans": spans.tolist(), **keyed(proof, "n total_ns")}


def _work(row: WorkRow) -> list[Any]:
    return list(keyed(row, "kind name op shape module line n total_ns self_ns max_ns flops n_bytes").values())


def shifts_of(ranks: Sequence[Tracks]) -> list[int]:
    """How much later than the earliest rank's window each one's begins, on their common clock, ns."""
    begins = [one.origin_unix_ns + one.window_ns[0] + one.shift_ns for one in ranks]
    longest = max((one.window_ns[1] - one.window_ns[0] for one in ranks), default=0)
    if not begins or max(begins) - min(begins) > 10 * longest:
        return [0] * len(begins)
    return [begin - min(begins) for begin in begins]
