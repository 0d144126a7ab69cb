"""A training loop simulated in closed form: workers, a queue in order, one consumer; delays as a probe gives them."""

from __future__ import annotations

from typing import Any

import numpy as np


def simulated(
    orders: np.ndarray,
    host: np.ndarray,
    *,
    fetch: float,
    compute: np.ndarray,
    n_workers: int = 1,
    prefetch: int = 2,
) -> tuple[np.ndarray, np.ndarray]:
    """Step times, and the input delay given in each step, of a loop whose step takes a batch, then computes.

    `orders`: delay that all workers get once, from the begin of that step on; `host`: delay of the consumer in it.
    A worker has at most `prefetch` batches that are asked for; batch k is worker k % n_workers's.
    """
    n_steps = len(compute)
    now = 0.0
    free = np.zeros(n_workers)  # when each worker has done its last batch
    seen = np.full(n_workers, -1)
    ready: list[float] = []
    asked = [0.0] * (n_workers * prefetch)  # when each batch was asked for
    ordered_at: list[float] = []
    durations = np.zeros(n_steps)

    def make(batch: int) -> None:
        worker = batch % n_workers
        start = max(free[worker], asked[batch])
        last = next((step for step in reversed(range(len(ordered_at))) if orders[step] and ordered_at[step] <= start), -1)
        wait = orders[last] if last > seen[worker] else 0.0
        seen[worker] = max(seen[worker], last)
        free[worker] = start + wait + fetch
        ready.append(free[worker])

    for step in range(n_steps):
        begun = now
        ordered_at.append(begun)
        while len(ready) <= step:
            make(len(ready))
        # batches whose making begins before the loop goes on are made by then: later orders do not reach them
        now = max(now, ready[step])
        asked.append(now)
        now += host[step] + compute[step]
        while len(ready) < len(asked) and max(free[len(ready) % n_workers], asked[len(ready)]) < now:
            make(len(ready))
        durations[step] = now - begun
    return durations, orders
