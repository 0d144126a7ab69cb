"""Gunther's universal scalability law through the sizes of a series."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profkit.model.documents.scaling import UslFit

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
