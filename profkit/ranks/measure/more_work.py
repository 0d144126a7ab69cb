"""Whether a CPU rank is late because it has more to do: more operators, or larger inputs, than its peers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.ranks.reduce.records import PHASES, RankSummary
from profkit.units import format_speedup

_HALF: Final = 0.5
"""Of what its steps take longer, what more work must be. Chosen, as for kernels."""
_LEAST: Final = 1.1
"""Chosen: dynamic programs differ by a few percent from rank to rank."""
_COMPUTE: Final = PHASES.index("compute")
_OWN: Final = (_COMPUTE, PHASES.index("host"))


class MoreWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has more of than the median of its peers, in numbers of one step."""

    is_operators: bool
    """Whether it runs more operators; else the inputs of the same ones are larger."""
    mine: float
    peers: float
    is_own: bool = False
    """Whether the operators are of work that its peers do not do: none more are in the backward pass."""

    @property
    def factor(self) -> float:
        """How many times its peers' it has."""
        return self.mine / self.peers

    @property
    def words(self) -> str:
        """As it stands behind the rank in a title."""
        what = f"{format_speedup(self.factor)} as many operators" if self.is_operators else "larger inputs"
        if self.is_own:
            return f"which does work of its own: {what}, no more of them in the backward pass"
        return f"which has more work: {what}"


def more_work(by_rank: Mapping[int, RankSummary], rank: int) -> MoreWork | None:
    """What makes a CPU rank's steps longer where it has more to do than its peers; None where that explains too little.

    Of operators those of the backward pass are more as well: what one rank alone evaluates has none, and is its own.
    """
    if not all(summary.is_cpu and len(summary.steps) for summary in by_rank.values()) or len(by_rank) < 2:
        return None
    own_ns = _over_peers({k: _own_ns(s) for k, s in by_rank.items()}, rank)
    least = max(1 + _HALF * (own_ns[2] - 1), _LEAST)
    all_of = _over_peers({k: _calls(s) for k, s in by_rank.items()}, rank)
    backward = _over_peers({k: _calls(s, "backward") for k, s in by_rank.items()}, rank)
    if min(all_of[2], backward[2]) >= least:
        return MoreWork(is_operators=True, mine=all_of[0], peers=all_of[1])
    if all_of[2] >= _LEAST > backward[2]:  # its first layer may have the inputs of that work
        run_ns = _over_peers({k: _own_ns(s, (_COMPUTE,)) for k, s in by_rank.items()}, rank)
        is_it = run_ns[0] - run_ns[1] >= _HALF * (own_ns[0] - own_ns[1])
        return MoreWork(is_operators=True, mine=all_of[0], peers=all_of[1], is_own=True) if is_it else None
    inputs = _over_peers({k: elements(s) for k, s in by_rank.items()}, rank)
    if inputs[2] >= least:
        return MoreWork(is_operators=False, mine=inputs[0], peers=inputs[1])
    return None


def elements(summary: RankSummary) -> float:
    """The elements of the first layer's input, mean over steps; 0 where shapes are not known."""
    return float(np.mean([math.prod(shape) for shape in summary.inputs])) if summary.inputs else 0.0


def _own_ns(summary: RankSummary, phases: Sequence[int] = _OWN) -> float:
    return float(summary.steps.phase_ns[:, list(phases)].sum(axis=1).mean())


def _calls(summary: RankSummary, word: str = "") -> float:
    """Innermost operators whose name has a word, per step."""
    rows = zip(summary.work.name, summary.work.count, strict=True)
    return sum(int(count) for name, count in rows if word in summary.name(int(name)).lower()) / len(summary.steps)


def _over_peers(values: Mapping[int, float], rank: int) -> tuple[float, float, float]:
    """A rank's value, the median of its peers' and how many times that it is (0 where either is not known)."""
    usual = float(np.median([value for other, value in values.items() if other != rank]))
    return values[rank], usual, values[rank] / usual if usual > 0 else 0.0
