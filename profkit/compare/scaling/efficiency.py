"""What efficiency follows, and where it went.

Gunther's universal scalability law through the sizes of a series, and log E of two traced sizes as a signed sum over
compute speed and the parts of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from profkit.model.budget import Budget
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.scaling import Decomposition, Held, Point, Series, Share, UslFit

WORK_PART = "work per compute second"
MIN_SIZES = 3
"""The law has three parameters; below, no fit. Guidance for a fit worth its error is six sizes or more (Gunther)."""


def fit_usl(gpus: Sequence[int], throughput: Sequence[float]) -> UslFit | None:
    """The least squares fit in relative error, None below three different sizes.

    The law is linear in 1/gamma, alpha/gamma and beta/gamma: N / X = (1 + alpha (N - 1) + beta N (N - 1)) / gamma, and
    rows are weighted by X / N so that an error of 1 % counts alike at every size.
    """
    sizes, rates = np.array(gpus, np.float64), np.array(throughput, np.float64)
    n_sizes = len(set(gpus))
    if n_sizes < MIN_SIZES:
        return None
    weights = rates / sizes
    columns = np.column_stack((np.ones_like(sizes), sizes - 1, sizes * (sizes - 1)))
    (inverse, contention, coherency), *_ = np.linalg.lstsq(columns * weights[:, None], np.ones_like(sizes), rcond=None)
    if inverse <= 0:  # sizes so far from the law that one GPU would have no throughput
        return None
    misfit = (columns @ (inverse, contention, coherency)) * weights - 1
    df = n_sizes - MIN_SIZES
    alpha, beta = float(contention / inverse), float(coherency / inverse)
    return UslFit(
        gamma=float(1 / inverse),
        alpha=alpha,
        beta=beta,
        df=df,
        residual=math.sqrt(float(misfit @ misfit) / df) if df else None,
        peak_gpus=math.sqrt((1 - alpha) / beta) if beta > 0 and alpha < 1 else None,
    )


def serial_fraction(speedup: float, times_the_gpus: float) -> float:
    """Karp and Flatt's experimentally determined serial fraction; negative where the speed-up is superlinear."""
    return (1 / speedup - 1 / times_the_gpus) / (1 - 1 / times_the_gpus)


def decomposed(series: Series, traces: Mapping[int, Sequence[RankReport]]) -> tuple[Decomposition, ...]:
    """The account of each traced size against the series' base, which must be traced as well."""
    base = traces.get(series.base.gpus)
    if base is None:
        return ()
    found = []
    for point in series.points[1:]:
        ranks = traces.get(point.gpus)
        growth = _work_per_gpu(series, point) / _work_per_gpu(series, series.base)
        one = decompose(base, ranks, work_growth=growth) if ranks is not None else None
        if ranks is not None and one is not None:
            efficiency, parts = one
            found.append(
                Decomposition(
                    base_gpus=series.base.gpus,
                    gpus=point.gpus,
                    efficiency=efficiency,
                    parts=parts,
                    is_cpu=all(device.kind == "cpu" for rank in ranks for device in rank.devices),
                )
            )
    return tuple(found)


def _work_per_gpu(series: Series, point: Point) -> float:
    if point.work_per_step is not None:
        return point.work_per_step / point.gpus
    return 1.0 if series.held is Held.WEAK else 1 / point.gpus


def decompose(
    base: Sequence[RankReport], larger: Sequence[RankReport], *, work_growth: float
) -> tuple[float, tuple[Share, ...]] | None:
    """E and the signed parts of log E, which sum to it; None where a trace has no steps or no compute.

    `work_growth` is the work of a GPU and step at the larger size over that at the base. With T the step, K its compute
    time and w its work, E = (w/T) ratio = (w/K) ratio times (K/T) ratio (docs/statistics.md 5). The first is 0 in logs
    where both run the same kernels on the same work. The second is divided among the parts that are not compute by the
    logarithmic mean of the two compute shares, which leaves no rest (LMDI, Ang 2005).
    """
    before, after = _account(base), _account(larger)
    if before is None or after is None:
        return None
    (step_old, shares_old), (step_new, shares_new) = before, after
    busy_old, busy_new = shares_old["compute"], shares_new["compute"]
    of_work = math.log(work_growth * step_old * busy_old / (step_new * busy_new))
    of_share = math.log(busy_new / busy_old)
    mean = (busy_new - busy_old) / of_share if abs(of_share) > 1e-12 else busy_new
    parts = [Share(name=WORK_PART, log_efficiency=of_work)]
    parts += [
        Share(name=name, log_efficiency=(shares_old[name] - shares_new[name]) / mean)
        for name in shares_old
        if name != "compute" and (shares_old[name] or shares_new[name])
    ]
    return work_growth * step_old / step_new, tuple(parts)


def _account(ranks: Sequence[RankReport]) -> tuple[float, dict[str, float]] | None:
    """The mean step (ns) and the shares of its parts, over all devices of the ranks."""
    budgets: list[Budget] = [device.budget for rank in ranks for device in rank.devices]
    n_steps = sum(rank.steps.n * len(rank.devices) for rank in ranks)
    window_ns = sum(budget.window_ns for budget in budgets)
    if not n_steps or not window_ns or not sum(budget.compute for budget in budgets):
        return None
    names = budgets[0].parts
    return window_ns / n_steps, {name: sum(budget.parts[name] for budget in budgets) / window_ns for name in names}
