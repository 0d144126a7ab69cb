"""Links from a sentence or a number to the intervals that prove it; text alone where the page draws none."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from profkit.model.documents.tracks import Tracks


class Links:
    """Which proofs the page's timeline holds, by key and rank."""

    def __init__(self, tracks: Iterable[Tracks]) -> None:
        self._known = {(proof.key, one.rank) for one in tracks for proof in one.proofs if proof.n}
        self._ranks = dict(sorted(self._known, key=lambda pair: pair[1] or 0, reverse=True))

    def to(self, key: str, rank: int | None = None) -> str:
        """The link to a proof of a rank; of no rank's, that of the first that has it. "" where there is none."""
        if key not in self._ranks:
            return ""
        of = rank if (key, rank) in self._known else self._ranks[key]
        return f"#see={quote(key, safe=':._-')}" + ("" if of is None else f"&rank={of}")
