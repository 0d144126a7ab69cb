"""How fast a rank's device runs what the others' run too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profkit.ranks.reduce.records import RankSummary


def compute_factor(by_rank: Mapping[int, RankSummary], rank: int) -> float | None:
    """How much longer kernels of one name and shape take on this rank than in the middle of the others.

    The mean of logarithms of median durations, weighted by this rank's time; None where no kernel is on two ranks.
    Source: NVIDIA's resiliency extension scores ranks likewise (docs/sources.md, rule 19).
    """
    medians: dict[tuple[str, int], list[int]] = {}
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
