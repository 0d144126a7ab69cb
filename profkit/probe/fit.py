"""Step times on delays, summed over lags, with a slow drift; intervals that hold for correlated noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.compare.stats.inference import t_quantile

LEVEL: Final = 0.95
_STEPS_PER_WAVE: Final = 30
_MOST_WAVES: Final = 20
SHUFFLES: Final = 200
"""Shuffled schedules (chosen: the spread of so many is known to 5 %)."""
_RARE: Final = 0.98
_FAR: Final = 3.0
"""Steps are cut above that percentile, by so many times its distance from the median (chosen: for checkpoints)."""

_BURST: Final = 0.5
"""Steps come in bursts if sums over as many as workers vary by less than that share of what independent ones would."""
_AROUND: Final = 12
"""Steps to each side whose residuals say how much steps vary here (chosen: as long as another job's burst may be)."""
_LEAST_SPREAD: Final = 0.5
"""Steps of a quiet stretch count at most 4 times as much as usual ones (chosen)."""
_CLEARLY: Final = 0.7
"""Of the intervals by one kind of weights, what those by the other must come to (chosen: closer ones are chance)."""
_LEAST_FREE: Final = 0.05
"""Residuals of steps that the fit follows are widened 20-fold at most (HC3; chosen)."""

Floats = NDArray[np.float64]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Delays of one kind, ns of each step, shape (n,), that show in the step and in up to `n_lags` steps after it."""

    dose: Floats
    n_lags: int


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Step times in ns, shape (n,); which may be treated, and which hold another loop, bool of the same shape.

    `burst` is the number of workers that may deliver their batches together.
    """

    duration: Floats
    is_probed: NDArray[np.bool_]
    is_odd: NDArray[np.bool_]
    burst: int = 1


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """Values with half-widths of their 95 % intervals, each of shape (m,)."""

    value: Floats
    half: Floats


def fitted(
    steps: Steps, terms: Sequence[Terms], weights: Floats, *, seed: int = 0, n_shuffles: int = SHUFFLES
) -> Estimates:
    """Weighted sums of slopes: `weights` has shape (m, number of terms); the identity gives the slopes.

    Raises ValueError where there are no more steps than unknowns.
    """
    sums = np.repeat(weights, [term.n_lags + 1 for term in terms], axis=1)  # of coefficients
    target = _cut(steps.duration, max(float(term.dose.max()) for term in terms))
    fit = _Fit(steps, terms, target, width=1)
    if _comes_in_bursts(fit.residual, steps.burst):
        fit = _Fit(steps, terms, target, width=steps.burst)
    of_residuals = _Fit(steps, terms, target, width=fit.width, spread=_around(np.abs(fit.residual)))
    of_times = _Fit(steps, terms, target, width=fit.width, spread=_around(fit.wanted, is_centred=True))
    fit, robust = of_residuals, of_residuals.correlated_half(sums)
    other = of_times.correlated_half(sums)
    if float(other.mean()) < _CLEARLY * float(robust.mean()):
        fit, robust = of_times, other
    shuffled = fit.shuffled_error(sums, seed, n_shuffles) * t_quantile(0.5 + LEVEL / 2, fit.df)
    return Estimates(value=sums @ fit.coefficients[: sums.shape[1]], half=np.maximum(robust, shuffled))


def _comes_in_bursts(residual: Floats, burst: int) -> bool:
    """Whether sums over the steps of a burst vary by much less than those of independent steps would."""
    if burst < 2 or len(residual) < 2 * burst:
        return False
    together = np.convolve(residual, np.ones(burst), "valid")
    return bool(together.var() < _BURST * burst * residual.var())


def _around(values: Floats, *, is_centred: bool = False) -> Floats:
    """How large these are around each step, itself left out, or how far about their median there.

    Another job on the machine comes and goes, and steps count by how quiet it is around them. Residuals of a fit to
    bursts are wrong where all is quiet; times vary by the delays as well, and count where they serve clearly better.
    """
    around = np.pad(values, _AROUND, mode="reflect")
    windows = np.delete(np.lib.stride_tricks.sliding_window_view(around, 2 * _AROUND + 1), _AROUND, axis=1)
    if is_centred:
        windows = np.abs(windows - np.median(windows, axis=1, keepdims=True))
    local = np.median(windows, axis=1)
    return np.asarray(np.maximum(local, _LEAST_SPREAD * max(float(np.median(local)), 1.0)))


class _Fit:
    """Least squares of step times on lagged delays and drift; each row a step, or a sum over `width` steps.

    Sums are for workers that deliver in bursts: one long step in `width`, whose length is no noise over all of them.
    Rows count by one over their `spread`, shape (rows,), squared.
    """

    def __init__(
        self, steps: Steps, terms: Sequence[Terms], target: Floats, *, width: int, spread: Floats | None = None
    ) -> None:
        self._steps, self._terms, self.width = steps, terms, width
        is_odd = np.convolve(steps.is_odd, np.ones(width), "valid") > 0.5
        self._kept = ~is_odd
        self._spread = np.ones(int(self._kept.sum())) if spread is None else spread
        self._drift = self._rows(_drift(len(steps.duration)))
        self._design = np.hstack([self._rows(_lagged(terms, None)), self._drift])
        n_kept, n_unknown = self._design.shape
        self.df = n_kept // width - n_unknown
        if self.df <= 0:
            raise ValueError(f"{n_kept} steps for {n_unknown} unknowns")
        self.wanted = wanted = self._rows(target[:, None])[:, 0]
        self._inverse = np.linalg.pinv(self._design.T @ self._design, hermitian=True)
        self.coefficients = self._inverse @ (self._design.T @ wanted)
        self.residual = wanted - self._design @ self.coefficients

    def _rows(self, columns: Floats) -> Floats:
        """Columns of shape (n, k), summed and weighted, without rows in which another loop ran."""
        total = np.cumsum(np.vstack([np.zeros(columns.shape[1]), columns]), axis=0)
        return np.asarray((total[self.width :] - total[: -self.width])[self._kept] / self._spread[:, None])

    def correlated_half(self, sums: Floats) -> Floats:
        """Half-widths for sums of coefficients by Newey and West's error; they hold where delays show unevenly.

        Student's t has as many degrees of freedom as steps that pull a sum, were each to pull alike (less one).
        """
        pull = (sums @ self._inverse[: sums.shape[1]]) @ self._design.T
        leverage = np.einsum("ij,jk,ik->i", self._design, self._inverse, self._design)
        scores = pull * (self.residual / np.maximum(1 - leverage, _LEAST_FREE))
        n_scores = scores.shape[1]
        width = max(max(term.n_lags for term in self._terms) + self.width - 1, int(4 * (n_scores / 100) ** (2 / 9)))
        variance = (scores**2).sum(axis=1)
        for lag in range(1, min(width, n_scores - 1) + 1):
            variance += 2 * (1 - lag / (width + 1)) * (scores[:, lag:] * scores[:, :-lag]).sum(axis=1)
        n_alike = (pull**2).sum(axis=1) ** 2 / np.maximum((pull**4).sum(axis=1), np.finfo(float).tiny)
        quantiles = [t_quantile(0.5 + LEVEL / 2, max(float(count) - 1, 2.0)) for count in n_alike]
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)) * quantiles)

    def shuffled_error(self, sums: Floats, seed: int, n_shuffles: int) -> Floats:
        """The spread of what shuffled schedules would have found in the residuals, which keep their order."""
        if not n_shuffles:
            return np.zeros(len(sums))
        rng = np.random.default_rng(seed)
        drift, _ = np.linalg.qr(self._drift)
        left = self.residual - drift @ (drift.T @ self.residual)
        probed = np.flatnonzero(self._steps.is_probed)
        order = np.arange(len(self._steps.duration))
        found = []
        for _ in range(n_shuffles):
            order[probed] = rng.permutation(probed)
            design = self._rows(_lagged(self._terms, order))
            design -= drift @ (drift.T @ design)
            found.append(sums @ (np.linalg.pinv(design.T @ design, hermitian=True) @ (design.T @ left)))
        return np.asarray(np.std(found, axis=0) * np.sqrt((self.df + self._design.shape[1]) / self.df))


def _lagged(terms: Sequence[Terms], order: NDArray[np.int64] | None) -> Floats:
    """A column for each lag of each term; `order` puts the treatments of the steps into another order first."""
    columns = []
    for term in terms:
        dose = term.dose if order is None else term.dose[order]
        columns += [np.concatenate([np.zeros(lag), dose[: len(dose) - lag]]) for lag in range(term.n_lags + 1)]
    return np.stack(columns, axis=1)


def _drift(n_steps: int) -> Floats:
    """A constant and slow cosines over the run, shape (n_steps, waves + 1)."""
    n_waves = min(n_steps // _STEPS_PER_WAVE, _MOST_WAVES)
    time = (np.arange(n_steps) + 0.5) / n_steps
    return np.cos(np.pi * np.outer(time, np.arange(n_waves + 1)))


def _cut(duration: Floats, most_dose: float) -> Floats:
    """Durations, with rare ones brought down to what no delay reaches."""
    middle, high = np.quantile(duration, [0.5, _RARE])
    return np.asarray(np.minimum(duration, high + _FAR * (high - middle) + most_dose))
