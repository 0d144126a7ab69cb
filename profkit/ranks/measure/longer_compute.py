"""Why a rank computes longer: a device that runs the same kernels slower, or more work: operators, inputs, tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.names import MEMORY_FAMILIES, family_of
from profkit.ranks.reduce.records import PHASES, RankSummary
from profkit.units import format_speedup

_ALIKE: Final = 0.1
"""By how much two counts of a kernel may differ to count as equal. Chosen."""
_MOST: Final = 0.8
"""Of a rank's compute, what must be in kernels that its peers run as often, and slower alike. Chosen."""
_HALF: Final = 0.5
"""Of what computing or a step takes longer, what a cause must explain. Chosen."""
_TOLD: Final = 0.1
"""Of a rank's compute, what kernels must have that tell of its device. Chosen."""
_UNHURT: Final = 0.2
"""Of the usual time of kernels alike, from which those that are no slower show that the device is not slow. Chosen: a
hot expert's products take 1.78x, all others 0.99x."""

_LEAST: Final = 1.1
"""Times its peers' operators. Chosen: dynamic programs differ by a few percent from rank to rank."""
_COMPUTE: Final = PHASES.index("compute")
_OWN: Final = (_COMPUTE, PHASES.index("host"))

_Kernel = tuple[str, int]
"""Name and shape."""


class Longer(StrEnum):
    """What makes a rank's compute longer."""

    DEVICE = "device"
    """The same kernels in the same shapes, nearly all of them slower alike: more work does not look so."""
    WORK = "work"
    """Other kernels, other shapes or more launches; or some kernels longer and the rest as fast as on the peers."""
    EITHER = "either"
    """The same kernels take longer, but not all alike, or other work runs beside them: a kernel that fits its grid to
    the device, or an operator of a CPU, does not show how much it has to do."""


def compute_factor(by_rank: Mapping[int, RankSummary], rank: int) -> float | None:
    """How much longer kernels of one name and shape take on this rank than in the middle of the others.

    The mean of logarithms of median durations, weighted by this rank's time; None where no kernel is on two ranks.
    Source: NVIDIA's resiliency extension scores ranks likewise (docs/sources.md, rule 19).
    """
    medians: dict[_Kernel, list[int]] = {}
    for other, summary in by_rank.items():
        if other != rank:
            for name, shape, median in zip(summary.work.name, summary.work.shape, summary.work.median_ns, strict=True):
                medians.setdefault((summary.name(int(name)), int(shape)), []).append(int(median))
    mine = by_rank[rank]
    logs, weights = [], []
    for name, shape, median, total in zip(
        mine.work.name, mine.work.shape, mine.work.median_ns, mine.work.total_ns, strict=True
    ):
        peers = medians.get((mine.name(int(name)), int(shape)), [])
        middle = float(np.median(peers)) if peers else 0.0
        if middle > 0 and median > 0:
            logs.append(float(np.log(median / middle)))
            weights.append(float(total))
    return float(np.exp(np.average(logs, weights=weights))) if weights else None


def longer_by(by_rank: Mapping[int, RankSummary], rank: int) -> Longer:
    """What makes this rank's compute longer than its peers'; it must be there, and one peer besides."""
    peers = [_runs(summary) for other, summary in by_rank.items() if other != rank]
    mine = _runs(by_rank[rank])
    common = [kernel for kernel in mine if 2 * sum(kernel in peer for peer in peers) > len(peers)]
    count, total = (np.array([mine[kernel][part] for kernel in common]) for part in (0, 1))
    usual = np.array([_usual([peer[kernel] for peer in peers if kernel in peer]) for kernel in common]).reshape(-1, 2)
    expected = usual[:, 1] / np.maximum(usual[:, 0], 1e-9) * count
    excess = _sum(mine) - float(np.median([_sum(peer) for peer in peers]))
    if float((total - expected).sum()) < _HALF * excess:
        return Longer.WORK
    is_as_often = np.abs(count - usual[:, 0]) <= _ALIKE * usual[:, 0]
    factor = float(total.sum()) / max(float(expected.sum()), 1.0)
    is_slow = total - expected >= _HALF * (factor - 1) * expected
    is_all = float(total[is_as_often & is_slow].sum()) >= _MOST * _sum(mine)
    if (tokens_factor(by_rank, rank) or 1.0) - 1 >= _HALF * (factor - 1) > 0:
        return Longer.WORK
    if by_rank[rank].is_cpu or (compute_factor(by_rank, rank) or 1.0) < LATE_RANK.limit("slow_kernels"):
        return Longer.EITHER
    # Low clocks leave what memory limits as fast as it was, and slow memory the arithmetic.
    is_memory = np.array([family_of(name) in (*MEMORY_FAMILIES, "optimizer") for name, _ in common], np.bool_)
    alike = max(is_memory, ~is_memory, key=lambda chosen: float((total - expected)[chosen].sum()))
    is_unhurt = alike & (total < LATE_RANK.limit("slow_kernels") * expected)
    if float(expected[is_unhurt].sum()) >= _UNHURT * float(expected[alike].sum()):
        return Longer.WORK
    return Longer.DEVICE if is_all else Longer.EITHER


def slow_device_ns(by_rank: Mapping[int, RankSummary], rank: int) -> int:
    """How much longer a rank's compute takes on its device than on its peers', ns per step; 0 unless that is slow.

    That is told by the kernels which it runs as often as they do: nearly all are slower. What it runs besides, as the
    last stage of a pipeline does its loss, takes as much longer.
    """
    peers = [_runs(summary) for other, summary in by_rank.items() if other != rank]
    total, expected, slow = 0.0, 0.0, 0.0
    for kernel, (count, lasts) in _runs(by_rank[rank]).items():
        theirs = [peer[kernel] for peer in peers if kernel in peer]
        usual = _usual(theirs) if 2 * len(theirs) > len(peers) else np.zeros(2)
        if usual[0] and abs(count - usual[0]) <= _ALIKE * usual[0]:
            total, expected = total + lasts, expected + float(usual[1])
            slow += lasts if lasts >= LATE_RANK.limit("slow_kernels") * usual[1] else 0.0
    compute = _sum(_runs(by_rank[rank]))
    is_slow = slow >= _MOST * total >= _MOST * _TOLD * compute > 0 and not by_rank[rank].is_cpu
    return round(compute * (1 - expected / total)) if is_slow else 0


def tokens_factor(by_rank: Mapping[int, RankSummary], rank: int) -> float | None:
    """How many times the tokens of its peers' median a rank computes on, told or by its embeddings; None: unknown."""
    return (_beside_peers(by_rank, rank, _tokens)[2] or None) if len(by_rank) > 1 else None


def _tokens(summary: RankSummary) -> float:
    steps = summary.steps
    told = np.where(steps.padded_tokens > 0, steps.padded_tokens, steps.tokens)
    return float(np.where(told > 0, told, steps.embedded).mean()) if len(steps) else 0.0


def _runs(summary: RankSummary) -> dict[_Kernel, tuple[float, float]]:
    """How often each kernel runs in a step, and for how long in all, ns; in the window where there are no steps."""
    n_steps = max(len(summary.steps), 1)
    work = summary.work
    return {
        (summary.name(int(name)), int(shape)): (int(count) / n_steps, int(total) / n_steps)
        for name, shape, count, total in zip(work.name, work.shape, work.count, work.total_ns, strict=True)
    }


def _usual(runs: list[tuple[float, float]]) -> NDArray[np.float64]:
    median: NDArray[np.float64] = np.median(np.array(runs), axis=0)
    return median


def _sum(runs: Mapping[_Kernel, tuple[float, float]]) -> float:
    return sum(total for _, total in runs.values())


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
    own_ns = _beside_peers(by_rank, rank, _own_ns)
    least = max(1 + _HALF * (own_ns[2] - 1), _LEAST)
    mine, peers, factor = _beside_peers(by_rank, rank, _calls)
    backward = _beside_peers(by_rank, rank, lambda summary: _calls(summary, "backward"))[2]
    if min(factor, backward) >= least:
        return MoreWork(is_operators=True, mine=mine, peers=peers)
    if factor >= _LEAST > backward:  # its first layer may have the inputs of that work
        run_ns = _beside_peers(by_rank, rank, lambda summary: _own_ns(summary, (_COMPUTE,)))
        is_it = run_ns[0] - run_ns[1] >= _HALF * (own_ns[0] - own_ns[1])
        return MoreWork(is_operators=True, mine=mine, peers=peers, is_own=True) if is_it else None
    mine, peers, factor = _beside_peers(by_rank, rank, elements)
    return MoreWork(is_operators=False, mine=mine, peers=peers) if factor >= least else None


def elements(summary: RankSummary) -> float:
    """The elements of the first layer's input, mean over steps; 0 where shapes are not known."""
    return float(np.mean([math.prod(shape) for shape in summary.inputs])) if summary.inputs else 0.0


def _own_ns(summary: RankSummary, phases: Sequence[int] = _OWN) -> float:
    return float(summary.steps.phase_ns[:, list(phases)].sum(axis=1).mean())


def _calls(summary: RankSummary, word: str = "") -> float:
    """Innermost operators whose name has a word, per step."""
    rows = zip(summary.work.name, summary.work.count, strict=True)
    return sum(int(count) for name, count in rows if word in summary.name(int(name)).lower()) / len(summary.steps)


def _beside_peers(
    by_rank: Mapping[int, RankSummary], rank: int, value_of: Callable[[RankSummary], float]
) -> tuple[float, float, float]:
    """A rank's value, the median of its peers' and how many times that it is (0 where either is not known)."""
    mine = value_of(by_rank[rank])
    usual = float(np.median([value_of(summary) for other, summary in by_rank.items() if other != rank]))
    return mine, usual, mine / usual if usual > 0 else 0.0
