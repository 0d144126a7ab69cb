"""Where threads ran by CPU samples: the functions that a sampler found them in during some time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.timeline.cpu import training_threads
from profkit.timeline.facts import Facts


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one thread in one function; "" where the trace does not say."""

    thread: str
    """Its name, else its id."""
    function: str
    module: str
    caller: str
    """The innermost function of the program's own around it, or the function itself: `fill (simulation)`."""
    n: int
    share: float
    """Of all samples that were asked for, 0-1."""

    @property
    def words(self) -> str:
        """The function and its module, or what is known of them: `fill (simulation)`."""
        if self.function and self.module:
            return f"{self.function} ({self.module})"
        return self.function or self.module or "no call chain"


def sampled(
    trace: Trace, *, threads: Sequence[int] | None = None, during: Intervals | None = None
) -> tuple[Sampled, ...]:
    """The samples of these threads (None: all) in that time (None: always), by thread and function, the most first."""
    samples = trace.samples
    chosen = np.ones(len(samples), np.bool_) if threads is None else np.isin(samples.thread, tuple(threads))
    if during is not None:
        chosen &= during.contains(samples.start_ns)
    rows = np.flatnonzero(chosen)
    if rows.size == 0:
        return ()
    keys = np.stack([column[rows] for column in (samples.thread, samples.name, samples.module, samples.caller)])
    kinds, counts = np.unique(keys, axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return tuple(
        Sampled(
            thread=trace.threads[thread].name or trace.threads[thread].tid,
            function=trace.name(function),
            module=trace.name(module),
            caller=trace.name(caller),
            n=int(n),
            share=int(n) / rows.size,
        )
        for (thread, function, module, caller), n in zip(kinds.T[order].tolist(), counts[order], strict=True)
    )


def waiting_samples(facts: Facts) -> tuple[Sampled, ...]:
    """The samples of the launching threads while the busiest device waits for a launch; on a CPU, between operators."""
    trace, main, cpu = facts.trace, facts.main_device, facts.cpu
    if len(trace.samples) == 0:
        return ()
    if main is not None:
        return sampled(trace, threads=facts.host.threads, during=main.idle.launch | main.idle.host)
    assert cpu is not None  # noqa: S101 - as in `Facts.budget`
    busy = cpu.operators | cpu.data | cpu.comm | cpu.compute | cpu.dispatch
    return sampled(trace, threads=training_threads(trace), during=busy.gaps(*trace.window_ns))
