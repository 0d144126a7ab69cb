"""Links from a sentence or a number to the intervals that prove it; text alone where the page draws none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from profkit.model.code import PlaceShare
from profkit.model.documents.tracks import Tracks
from profkit.model.finding import Evidence, Finding
from profkit.shell import clean

_ON_RANK: Final = re.compile(r"\bon rank (\d{1,7})\b")


class Links:
    """Which proofs the page's timeline holds, by key and rank."""

    def __init__(self, tracks: Iterable[Tracks]) -> None:
        self._known = {(clean(proof.key), one.rank) for one in tracks for proof in one.proofs if proof.n}
        self._ranks = dict(sorted(self._known, key=lambda pair: pair[1] or 0, reverse=True))

    def to(self, key: str, rank: int | None = None) -> str:
        """The link to a proof of a rank; of no rank's, that of the first that has it. "" where there is none."""
        key = clean(key)
        if key not in self._ranks:
            return ""
        of = rank if (key, rank) in self._known else self._ranks[key]
        return f"#see={quote(key, safe=':._-')}" + ("" if of is None else f"&rank={of}")

    def to_finding(self, finding: Finding) -> str:
        """The link to all intervals of a finding."""
        return self.to(f"finding:{finding.id}", finding.rank)

    def to_evidence(self, finding: Finding, item: Evidence) -> str:
        """The link to the intervals of one sentence, else to its finding's; on the rank that the sentence names."""
        named = _ON_RANK.search(item.statement)
        rank = finding.rank if named is None else int(named[1])
        return self.to(f"finding:{finding.id}:{item.metric}", rank) or self.to(f"finding:{finding.id}", rank)

    def to_place(self, share: PlaceShare, rank: int | None) -> str:
        """The link to what runs for a line of the user's code."""
        return self.to(f"line:{share.place.name}", rank)
