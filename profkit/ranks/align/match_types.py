"""What matching gives: instances of collectives across ranks, pairs of sends and receives, and what was refused."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from profkit.model.arrays import I64
from profkit.ranks.reduce.records import Group


class Method(StrEnum):
    """How instances were matched, the most trustworthy first."""

    SEQ = "sequence number"
    ENDS = "order, checked by ends"
    STEPS = "order within steps"
    ORDER = "order alone"


class GroupMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one process group. `rows` [n, R]: per instance and rank the row in its `CollectiveRows`.

    `ranks` are the captured ranks that take part, in the order of the columns; `NO_ROW` where a window misses
    it. Per rank, `n_unmatched` counts its rows without partner, `n_late_start` the instances before its first,
    `n_missed` those between its first and last that it has not.
    """

    group: Group
    ranks: tuple[int, ...]
    method: Method
    rows: I64
    n_unmatched: tuple[int, ...]
    n_late_start: tuple[int, ...]
    n_missed: tuple[int, ...]
    note: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the group are here; unknown counts as whole."""
        return self.group.size <= len(self.ranks)


class PairMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Sends of one rank with the receives of another; `rows` [n, 2]: the sender's row, the receiver's."""

    group: Group
    sender: int
    receiver: int
    rows: I64


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """What was not matched, and why."""

    group: Group
    ranks: tuple[int, ...]
    reason: str
    n_rows: int


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """Everything matched across ranks, and everything refused."""

    groups: tuple[GroupMatch, ...]
    pairs: tuple[PairMatch, ...]
    refusals: tuple[Refusal, ...]

    @property
    def parts(self) -> list[tuple[tuple[int, ...], I64]]:
        """The ranks and rows of all that was matched, groups before pairs."""
        groups = [(match.ranks, match.rows) for match in self.groups]
        return groups + [((pair.sender, pair.receiver), pair.rows) for pair in self.pairs]
