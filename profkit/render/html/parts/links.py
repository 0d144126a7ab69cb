"""Links from a sentence or a number to the intervals that prove it; text alone where the page draws none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.tracks import Tracks
from profkit.model.finding import Evidence, Finding
from profkit.shell import clean

_ON_RANK: Final = re.compile(r"\bon rank (\d{1,7})\b")


class Links:
    """Which proofs the page's timeline holds, by key and rank."""

    def __init__(self, tracks: Iterable[Tracks], ranks: Iterable[RankReport] = (), usual: int | None = None) -> None:
        """`ranks` tell which finding a number is of; `usual` is the rank that stands for the others."""
        self._known = {(clean(proof.key), one.rank) for one in tracks for proof in one.proofs if proof.n}
        self._ranks = dict(sorted(self._known, key=lambda pair: pair[1] or 0, reverse=True))
        self._owners = {(one.rank, found.measure.metric): found.id for one in ranks for found in one.findings}
        self._usual = usual

    def to(self, key: str, rank: int | None = None) -> str:
        """The link to a proof of a rank, "" where it has none; of no rank's, that of the usual one, else the first."""
        key = clean(key)
        of = next((one for one in (rank, self._usual) if (key, one) in self._known), self._ranks.get(key))
        if key not in self._ranks or rank not in (None, of):
            return ""
        return f"#see={quote(key, safe=':._-')}" + ("" if of is None else f"&rank={of}")

    def to_finding(self, finding: Finding) -> str:
        """The link to all intervals of a finding, on the rank whose numbers it tells."""
        return self.to(f"finding:{finding.id}", self._rank_of(finding))

    def to_evidence(self, finding: Finding, item: Evidence) -> str:
        """The link to the intervals of one sentence, else to its finding's; on the rank that the sentence names.

        A part of the budget proves what is said of it alone, whatever finding says it.
        """
        named = _ON_RANK.search(item.statement)
        rank = self._rank_of(finding) if named is None else int(named[1])
        parts = item.metric.removeprefix("budget_ns.")
        owner = self._owners.get((rank, item.metric), finding.id)
        keys = (f"part:{parts}",) if parts != item.metric and parts.isidentifier() else ()
        keys = (f"measure:{item.metric}", *keys)
        found = (self.to(key, rank) for key in (*keys, f"finding:{owner}", f"finding:{finding.id}"))
        return next(filter(None, found), "")

    def to_place(self, finding: Finding, number: int) -> str:
        """The link to what a finding has at one of its lines, else to what runs for that line."""
        rank, name = self._rank_of(finding), finding.places[number].place.name
        of = finding.places[number].of or finding.id
        return self.to(f"finding:{of}:place:{number}", rank) or self.to(f"line:{name}", rank)

    def _rank_of(self, finding: Finding) -> int | None:
        """The rank that a finding is about; of one that many have, the rank whose numbers stand for them."""
        if finding.rank is not None:
            return finding.rank
        named = (_ON_RANK.search(item.statement) for item in finding.evidence)
        return next((int(found[1]) for found in named if found is not None), None)
