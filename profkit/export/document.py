"""One Chrome trace document: the events of one rank or of several, profkit's own rows, and what stands around them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.export.cut import Cut
from profkit.export.original import Change, Original, RawEvent, joined
from profkit.export.own import own_events
from profkit.export.place import Place
from profkit.export.rewrite import Rewriting
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.kineto.merged_ranks import OF_RANKS
from profkit.model.documents.tracks import Tracks
from profkit.timeline.elsewhere import EXPORT
from profkit.version import __version__

MARK: Final = EXPORT
"""The first key of a file that profkit has exported."""
_OF_ONE_RANK: Final = frozenset(("traceName", "baseTimeNanoseconds", "distributedInfo", MARK, OF_RANKS))

Pieces = Iterator[bytes]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's events: a file, or the events that stand for one (`drawn`), with the rows drawn beside them."""

    source: str
    path: Path | None
    tracks: tuple[Tracks, ...]
    places: tuple[Place, ...]
    """Of each of `tracks`."""
    drawn: Any = None
    """A function without arguments that gives pieces of events, for a source that has none of its own."""
    metadata: Mapping[str, Any] = {}
    """What stands around the events of a `drawn` part."""
    window_ns: tuple[int, int] | None = None
    """Only what touches this, on the rank's own clock."""


class Written(msgspec.Struct):
    """What became of the events while a document was made."""

    n_arrows_cut: int = 0


def chrome_trace(
    parts: Sequence[Part],
    *,
    told: Mapping[str, Any],
    lenient: bool = False,
    progress: Progress | None = None,
    written: Written | None = None,
) -> Pieces:
    """The document in pieces of text; `told` is what it says of itself under `MARK`. Raises TraceError."""
    written = written or Written()
    mark = json.dumps({"version": __version__, **told})
    yield f'{{"{MARK}": {mark},\n"traceEvents": [\n'.encode()
    metadata: list[Mapping[str, Any]] = []
    is_first = True
    for piece in _all_pieces(parts, metadata, lenient=lenient, progress=progress, written=written):
        if not piece.strip():
            continue
        yield piece if is_first else b",\n" + piece
        is_first = False
    yield _tail(parts, metadata)


def _all_pieces(
    parts: Sequence[Part],
    metadata: list[Mapping[str, Any]],
    *,
    lenient: bool,
    progress: Progress | None,
    written: Written,
) -> Pieces:
    for part in parts:  # first, so that a reader knows at once whose process is whose
        for tracks, place in zip(part.tracks, part.places, strict=True):
            yield from own_events(tracks, place, part.window_ns)
    for part in parts:
        cut = None if part.window_ns is None else Cut(part.window_ns)
        is_alone = len(parts) == 1  # a file that holds several ranks tells them apart itself
        rewriting = None if is_alone else Rewriting(part.places[0])
        if part.path is None:
            yield from part.drawn()
            metadata.append(part.metadata)
            continue
        original = Original(part.path, part.source, lenient=lenient, progress=progress)
        yield from original.pieces(_change(cut, rewriting))
        metadata.append(original.metadata)
        if cut is not None:
            arrows = cut.arrows()
            written.n_arrows_cut += cut.n_arrows_cut
            if arrows:
                yield joined(arrows if rewriting is None else rewriting(arrows))


def _change(cut: Cut | None, rewriting: Rewriting | None) -> Change | None:
    if cut is None or rewriting is None:
        return cut or rewriting

    def both(events: list[RawEvent]) -> list[RawEvent]:
        return rewriting(cut(events))

    return both


def _tail(parts: Sequence[Part], metadata: Sequence[Mapping[str, Any]]) -> bytes:
    """The end of the events and what stands around them: of several ranks what all say alike."""
    if len(parts) == 1:
        top = {key: value for key, value in metadata[0].items() if key != MARK}
    else:
        top = _of_all(parts, metadata)
    top.setdefault("displayTimeUnit", "ms")
    return b"\n],\n" + json.dumps(top, indent=1).encode().removeprefix(b"{")


def _of_all(parts: Sequence[Part], metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all ranks say alike, and under `OF_RANKS` what each says for itself."""
    first = metadata[0]
    keys = [key for key in dict.fromkeys(key for one in metadata for key in one) if key not in _OF_ONE_RANK]
    alike = {key for key in keys if all(key in one and one[key] == first.get(key) for one in metadata)}
    said = first.get("distributedInfo")
    info = said if isinstance(said, dict) else {}
    return {
        "baseTimeNanoseconds": min(_base(one) for one in metadata),
        "distributedInfo": {key: value for key, value in info.items() if key != "rank"},
        **{key: first[key] for key in keys if key in alike},
        OF_RANKS: {
            str(part.places[0].rank): {key: one[key] for key in keys if key in one and key not in alike}
            for part, one in zip(parts, metadata, strict=True)
        },
    }


def _base(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("baseTimeNanoseconds")
    return value if isinstance(value, int) else 0
