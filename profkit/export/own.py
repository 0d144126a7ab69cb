"""Profkit's own rows as events (steps, budget, idle causes, host, findings), and the window around one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.errors import UsageError
from profkit.export.place import OWN_CATEGORY, Place, described, us_text
from profkit.model.arrays import I64
from profkit.model.documents.tracks import CATEGORIES, Proof, Role, Track, Tracks

_ROLES: Final = {
    Role.STEPS: "profkit: steps",
    Role.BUDGET: "profkit: budget",
    Role.HOST: "profkit: host",
    Role.COLLECTIVES: "profkit: collectives",
}
"""Rows that the trace itself does not show, with their names; streams and threads are in it."""
_OF_HOST: Final = {"idle_data": "waiting for data", "idle_sync": "blocked", "idle_launch": "dispatching"}
_IDLE: Final = np.array([name.startswith("idle_") for name in CATEGORIES])
_PER_PIECE: Final = 20_000
_FINDING: Final = "finding:"
_TIMES: Final = 5
"""So many times its own length of room on each side of an interval. Chosen: what led to it is on the screen."""
_LEAST_ROOM_NS: Final = 1_000_000
"""A millisecond, of the shortest too. Chosen."""


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of profkit's process: columns of shape (n,); `names` are JSON texts."""

    title: str
    start_ns: I64
    end_ns: I64
    names: tuple[bytes, ...]
    name: NDArray[Any]
    args: tuple[bytes, ...]
    """For each name the arguments of its events, as JSON."""


def own_events(tracks: Tracks, place: Place, window_ns: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Pieces of events, joined by commas, of profkit's rows for one rank; of a window (ns) what touches it."""
    rows = [row for row in _rows(tracks) if row.start_ns.size]
    pid, told = place.own_pid, place.told
    said = partial(described, pid, category=OWN_CATEGORY)
    heads = [
        said("process_name", {"name": f"{place.prefix}profkit", **told}),
        said("process_labels", {"labels": "what profkit found", **told}),
        said("process_sort_index", {"sort_index": place.order(-1), **told}),
    ]
    for number, row in enumerate(rows):
        tid = pid + number + 1
        heads.append(said("thread_name", {"name": row.title, **told}, tid=tid))
        heads.append(said("thread_sort_index", {"sort_index": number, **told}, tid=tid))
    yield b",\n".join(heads)
    for number, row in enumerate(rows):
        yield from _events(row, place, pid + number + 1, window_ns)


def _rows(tracks: Tracks) -> Iterator[_Row]:
    texts = {proof.category: proof.label for proof in tracks.proofs if proof.key.startswith("part:")}
    for role in _ROLES:
        for track in tracks.tracks:
            if track.role is role:
                yield from _of_track(track, tracks.names, texts)
    for proof in tracks.proofs:
        if proof.key.startswith(_FINDING) and ":" not in proof.key.removeprefix(_FINDING):  # else of one sentence of it
            yield _of_proof(proof, tracks)


def _of_track(track: Track, names: Sequence[str], parts: Mapping[str, str]) -> Iterator[_Row]:
    """A row; what has no name is called by what it is. The budget comes twice: whole, and its idle time alone."""
    every = np.ones(len(track), np.bool_)
    if track.role is Role.BUDGET:
        idle = {name: f"idle: {text}" for name, text in parts.items() if name.startswith("idle_")}
        yield _by_category(_ROLES[track.role], track, every, {**parts, **idle})
        yield _by_category("profkit: idle causes", track, _IDLE[track.category], parts)
        return
    row = _by_category(_ROLES[track.role], track, every, _OF_HOST if track.role is Role.HOST else {})
    yield replace(
        row,
        names=(*row.names, *(json.dumps(name).encode() for name in names)),
        name=np.where(track.name >= 0, track.name + len(CATEGORIES), row.name),
        args=(*row.args, *((b"{}",) * len(names))),
    )


def _by_category(title: str, track: Track, kept: NDArray[np.bool_], texts: Mapping[str, str]) -> _Row:
    return _Row(
        title=title,
        start_ns=track.start_ns[kept],
        end_ns=track.end_ns[kept],
        names=tuple(json.dumps(texts.get(name) or name.replace("_", " ")).encode() for name in CATEGORIES),
        name=track.category[kept].astype(np.int64),
        args=tuple(json.dumps({"category": name}).encode() for name in CATEGORIES),
    )


def _of_proof(proof: Proof, tracks: Tracks) -> _Row:
    start_ns, end_ns = spans_of(proof, tracks)
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    if start_ns.size:  # a viewer draws what overlaps wrongly
        end_ns = np.minimum(end_ns, np.append(start_ns[1:], end_ns[-1:]))
    told = {"finding": proof.key.removeprefix(_FINDING), "title": proof.label, "intervals": proof.n}
    return _Row(
        title=f"profkit: {proof.key.replace(':', ' ', 1)}",
        start_ns=start_ns,
        end_ns=end_ns,
        names=(json.dumps(proof.label or proof.key).encode(),),
        name=np.zeros(start_ns.size, np.int64),
        args=(json.dumps(told).encode(),),
    )


def spans_of(proof: Proof, tracks: Tracks) -> tuple[I64, I64]:
    """The starts and ends of the intervals that a proof stands on, ns: its own, or all of its category in its rows."""
    if proof.start_ns.size or not proof.category:
        return proof.start_ns, proof.end_ns
    code = CATEGORIES.index(proof.category)
    found = [(track, track.category == code) for track in tracks.tracks if track.key in proof.tracks[:1]]
    start = [track.start_ns[rows] for track, rows in found]
    end = [track.end_ns[rows] for track, rows in found]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *start]), np.concatenate([none, *end])


def _events(row: _Row, place: Place, tid: int, window_ns: tuple[int, int] | None) -> Iterator[bytes]:
    kept = np.flatnonzero(row.end_ns > row.start_ns)
    if window_ns is not None:
        kept = kept[(row.start_ns[kept] < window_ns[1]) & (row.end_ns[kept] > window_ns[0])]
    where = f'"ph":"X","cat":"{OWN_CATEGORY}","pid":{place.own_pid},"tid":{tid}'.encode()
    for first in range(0, kept.size, _PER_PIECE):
        part = kept[first : first + _PER_PIECE]
        start = (row.start_ns[part] + place.shift_ns).tolist()
        length = (row.end_ns[part] - row.start_ns[part]).tolist()
        yield b",\n".join(
            b'{%s,"name":%s,"ts":%s,"dur":%s,"args":%s}'
            % (where, row.names[name], us_text(at).encode(), us_text(lasts).encode(), row.args[name])
            for name, at, lasts in zip(row.name[part].tolist(), start, length, strict=True)
        )


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
