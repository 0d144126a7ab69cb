"""The window around what a report says: the longest interval that proves it, with room on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.errors import UsageError
from profkit.export.own import spans_of
from profkit.model.documents.tracks import Proof, Role, Tracks

_TIMES: Final = 5
"""So many times its own length of room on each side of an interval. Chosen: what led to it is on the screen."""
_LEAST_ROOM_NS: Final = 1_000_000
"""A millisecond, of the shortest too. Chosen."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """The window `[low_ns, high_ns)` on the clock of the rank at `number`, and the interval that was asked for."""

    number: int
    key: str
    label: str
    span_ns: tuple[int, int]
    window_ns: tuple[int, int]
    n: int
    """Intervals that prove the same, this one among them."""


def around(drawn: Sequence[Tracks], asked: str) -> Around:
    """The window around a finding, a part of the budget or a step, of the rank where it lasts longest.

    `asked` is a key ("finding:host.sync", "part:idle_data", "step:3"), or what stands behind its colon. Raises
    UsageError where nothing has that name.
    """
    best: tuple[int, int, Proof, tuple[int, int]] | None = None
    for number, tracks in enumerate(drawn):
        proof = _named(tracks.proofs, asked)
        span = None if proof is None else _longest(proof, tracks)
        if proof is not None and span is not None and (best is None or span[1] - span[0] > best[0]):
            best = span[1] - span[0], number, proof, span
    if best is None:
        raise UsageError(
            f"--around {asked!r}: the report has no intervals of that name", hint=f"it has {_known(drawn) or 'none'}"
        )
    length, number, proof, (low, high) = best
    room = min(max(_TIMES * length, _LEAST_ROOM_NS), _half_step_ns(drawn[number]))
    return Around(
        number=number,
        key=proof.key,
        label=proof.label,
        span_ns=(low, high),
        window_ns=(low - room, high + room),
        n=proof.n,
    )


def _named(proofs: Iterable[Proof], asked: str) -> Proof | None:
    """The proof of that key; the findings come before the parts of the budget."""
    given = tuple(proofs)
    keys = (asked, f"finding:{asked}", f"part:{asked}")
    return next((proof for key in keys for proof in given if proof.key == key), None)


def _known(drawn: Sequence[Tracks]) -> str:
    """The keys that can be asked for: findings, then parts of the budget, then steps."""
    keys = list(dict.fromkeys(proof.key for tracks in drawn for proof in tracks.proofs))
    steps = [key for key in keys if key.startswith("step:")]
    findings = [key.removeprefix("finding:") for key in keys if key.startswith("finding:")]
    others = [key for key in keys if ":" not in key or key.startswith("part:")]
    whole = [key for key in findings if ":" not in key]
    return ", ".join((*whole, *others, *([f"{steps[0]} to {steps[-1]}"] if len(steps) > 1 else steps)))


def _longest(proof: Proof, tracks: Tracks) -> tuple[int, int] | None:
    start, end = spans_of(proof, tracks)
    if start.size == 0:
        return None
    at = int(np.argmax(end - start))
    return int(start[at]), int(end[at])


def _half_step_ns(tracks: Tracks) -> int:
    """Half of the median step; of a trace without steps half of its window."""
    steps = [track for track in tracks.tracks if track.role is Role.STEPS and len(track)]
    if not steps:
        return max((tracks.window_ns[1] - tracks.window_ns[0]) // 2, 1)
    return max(int(np.median(steps[0].end_ns - steps[0].start_ns)) // 2, 1)
