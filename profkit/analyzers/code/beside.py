"""`host.callback`: what a trainer calls beside training (callbacks, logging) and takes part of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from profkit.analyzers.base import Scope
from profkit.findings.trainers import CALLBACK, callback_fix
from profkit.model.code import Phase
from profkit.model.finding import Evidence, Finding
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.cpu import training_threads
from profkit.units import format_fraction, format_ns

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_CONFIDENCE = 0.8
"""Chosen: what a callback does may still be wanted, and how much of it is the profiler's is not known exactly."""
_TRAINS = 0.1
"""Share of a function's time that lies in the backward pass, from which it is a part of training. Chosen."""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the trainer calls beside training, and its time in the window, ns."""

    name: str
    ns: int
    rows: Rows


def hooks_of(facts: Facts, code: Code) -> tuple[Hook, ...]:
    """What the trainer calls beside training, on the thread that trains; the longest first."""
    named = [place.beside for place in code.places]
    main = facts.main_device
    times = Intervals.pairs([facts.trace.window_ns])
    if main is not None:  # what runs while the GPU works costs nothing
        times = main.activity.any.gaps(*facts.trace.window_ns)
    rows = Rows.of_host(code, _training_thread(facts) if any(named) else (), times)
    if not len(rows):
        return ()
    seen = code.at(rows.thread, rows.at_ns)
    names = sorted(set(named) - {""})
    number = np.array([*(names.index(one) if one else -1 for one in named), -1])[seen.place]
    found = []
    for one, name in enumerate(names):
        mine = np.flatnonzero(number == one)
        part = Rows(thread=rows.thread[mine], at_ns=rows.at_ns[mine], ns=rows.ns[mine])
        if part.ns[seen.phase[mine] == Phase.BACKWARD].sum() > _TRAINS * part.ns.sum():
            continue
        found.append(Hook(name=name, ns=int(part.ns.sum()), rows=part))
    return tuple(sorted(found, key=lambda hook: -hook.ns))


def judge(scope: Scope, hooks: tuple[Hook, ...], trainer: str) -> tuple[Finding, ...]:
    """The finding, where together they take enough of the window."""
    total = sum(hook.ns for hook in hooks)
    if not hooks or scope.fraction(total) < CALLBACK.limit("window"):
        return ()
    first = hooks[0]
    fraction = scope.fraction(total)
    return (
        CALLBACK.found(
            title=f"{first.name} takes part of each step, beside training"
            if "' " in first.name or "'s " in first.name
            else f"{trainer} calls {first.name} in each step, beside training",
            fraction=fraction,
            confidence=_CONFIDENCE,
            recoverable_ns=scope.per_step(total),
            evidence=tuple(
                Evidence.time(
                    "code.beside_ns",
                    hook.ns,
                    f"{hook.name} takes {format_ns(scope.per_step(hook.ns))} {scope.each}"
                    f" ({format_fraction(scope.fraction(hook.ns))} of the window)",
                )
                for hook in hooks[:3]
                if scope.fraction(hook.ns) >= 0.01
            ),
            fix=callback_fix(trainer, first.name),
        ),
    )


def _training_thread(facts: Facts) -> tuple[int, ...]:
    """The thread of the training with most operators: several at a time would count the same time twice."""
    threads = facts.host.threads if facts.main_device is not None else training_threads(facts.trace)
    counts = np.bincount(facts.trace.ops.thread, minlength=max(threads, default=0) + 1)
    return tuple(sorted(threads, key=lambda thread: -int(counts[thread]))[:1])
