"""Training loops of known slopes, simulated without a clock: workers, a queue in order, one consumer.

Times are in ms.
"""

from dataclasses import dataclass

import numpy as np

from profkit.capture.inside.probe.plan import AFTER, BEFORE, Plan
from profkit.probe.fit import Estimates, Steps, Terms, fitted

PLACES = ("input", "forward", "backward", "optimizer")


@dataclass
class Loop:
    """A loop: time of a fetch and of the consumer's step, workers (0: the consumer fetches) and their batches."""

    fetch: float
    compute: float
    n_workers: int = 0
    prefetch: int = 2

    @property
    def step(self) -> float:
        return max(self.fetch / self.n_workers, self.compute) if self.n_workers else self.fetch + self.compute


def noise(rng: np.random.Generator, n_steps: int, spread: float, memory: float) -> np.ndarray:
    """Autocorrelated noise (AR 1) of that standard deviation."""
    found = rng.normal(0, spread * np.sqrt(1 - memory**2), n_steps)
    for step in range(1, n_steps):
        found[step] += memory * found[step - 1]
    return found


def ran(loop: Loop, compute: np.ndarray, orders: np.ndarray, host: np.ndarray) -> np.ndarray:
    """Step times; `orders`: delay that each worker has once, from the begin of that step on; `host`: the consumer's."""
    if not loop.n_workers:
        return loop.fetch + compute + orders + host
    now = 0.0
    free = np.zeros(loop.n_workers)  # when each worker has made its last batch
    seen = np.full(loop.n_workers, -1)
    ready: list[float] = []
    asked = [0.0] * (loop.n_workers * loop.prefetch)
    begun: list[float] = []
    durations = np.zeros(len(compute))

    def make(batch: int) -> None:
        worker = batch % loop.n_workers
        start = max(free[worker], asked[batch])
        last = next((step for step in reversed(range(len(begun))) if orders[step] and begun[step] <= start), -1)
        wait = orders[last] if last > seen[worker] else 0.0
        seen[worker] = max(seen[worker], last)
        free[worker] = start + wait + loop.fetch
        ready.append(free[worker])

    for step in range(len(compute)):
        begun.append(now)
        while len(ready) <= step:
            make(len(ready))
        now = max(now, ready[step])
        asked.append(now)
        now += host[step] + compute[step]
        while len(ready) < len(asked) and max(free[len(ready) % loop.n_workers], asked[len(ready)]) < now:
            make(len(ready))
        durations[step] = now - begun[-1]
    return durations


def probed(loop: Loop, *, seed: int, n_steps: int = 400, spread: float = 0.05, memory: float = 0.5) -> Estimates:
    """The slopes of `PLACES` and their sum times shares of the step, in this order."""
    plan = Plan(
        places=PLACES,
        doses_ns=(round(0.15 * loop.step * 1e6), round(0.45 * loop.step * 1e6)),
        n_steps=n_steps,
        seed=seed,
        cost=0.05,
        step_ns=round(loop.step * 1e6),
    )
    n_all = BEFORE + n_steps + AFTER
    doses = {place: np.zeros(n_all) for place in PLACES}
    for step in range(n_steps):
        if (treatment := plan.treatment(step)) is not None:
            doses[treatment[0]][BEFORE + step] = plan.doses_ns[treatment[1]] / 1e6
    rng = np.random.default_rng(seed)
    compute = np.maximum(loop.compute * (1 + noise(rng, n_all, spread, memory)), 0.1 * loop.compute)
    duration = ran(loop, compute, doses["input"], sum(doses[place] for place in PLACES[1:]))
    on_host = loop.n_workers + 1 if loop.n_workers else 1
    lags = dict.fromkeys(PLACES, on_host)
    lags["input"] += loop.n_workers * loop.prefetch
    is_probed = np.zeros(n_all, bool)
    is_probed[BEFORE : BEFORE + n_steps] = True
    steps = Steps(duration=duration, is_probed=is_probed, is_odd=np.zeros(n_all, bool), burst=max(loop.n_workers, 1))
    parts = [loop.fetch / max(loop.n_workers, 1), *[loop.compute / 3] * 3]
    weights = np.vstack([np.eye(len(PLACES)), np.array(parts) / duration.mean()])
    return fitted(steps, [Terms(dose=doses[place], n_lags=lags[place]) for place in PLACES], weights, seed=seed)
