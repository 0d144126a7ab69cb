"""What to do about waits for input: by the line that makes batches slow, else by the kind of loader."""

from __future__ import annotations

from profkit.analyzers.input.measured import OPERATORS, UNMARKED, InputWaits
from profkit.findings.input import (
    HANDED_FIX,
    LOCK_FIX,
    LOCKS,
    MADE_FIX,
    REPEATED_FIX,
    SAMPLER_FIX,
    STARVED,
    fix_of_line,
    fix_of_most,
)
from profkit.model.code import OF_THREAD
from profkit.units import format_fraction, format_speedup


def fix_of(result: InputWaits) -> str:
    """What is to be done about the line that takes most of the time, and what of the loader."""
    if result.is_handed_over:
        return HANDED_FIX.format(f", {result.code.collates}," if result.code.collates else "")
    of_sampler = sum(one.share for one in result.host_lines if one.place.function == "__iter__")
    if result.is_by_index and of_sampler >= STARVED.limit("line"):  # what iterates then is the sampler
        return SAMPLER_FIX.format(share=format_fraction(of_sampler))
    if result.is_repeating:
        return REPEATED_FIX
    line, first = result.line, result.first_line
    if line is not None and LOCKS.search(line.place.text):
        return LOCK_FIX.format(line.place.name)
    of_line = fix_of_line(first.place.text) if first is not None else ""
    return f"{of_line}; else {_fix_of_loader(result)}" if of_line else _of_most(result) or _fix_of_loader(result)


def _of_most(result: InputWaits) -> str:
    """What there is against one line that takes nearly all of the time, before what there is of the loader."""
    is_late_alone = result.loader == "workers" and (result.slow_worker is not None or result.keeps_up)
    first = result.line
    if (
        first is None
        or first.share < STARVED.limit("most")
        or result.loader in (OF_THREAD, OPERATORS, UNMARKED)
        or is_late_alone
    ):
        return ""
    place = first.place
    what = fix_of_most(f"{place.text} {place.call}")
    workers = "more workers second" if result.loader == "workers" else "workers of the DataLoader (num_workers) second"
    return f"{place.name} first, which has {format_fraction(first.share)} of that time: {what}; {workers}"


def _cheaper(result: InputWaits, else_words: str) -> str:
    """How batches become cheaper: the line first that takes most of the time, where one does."""
    first = result.line
    if first is None:
        return else_words
    return f"{first.place.name} first, which has {format_fraction(first.share)} of that time"


def _fix_of_loader(result: InputWaits) -> str:
    busy = result.scope.window_ns - result.idle_ns
    if result.loader == "single-process":
        pinned = "" if result.scope.is_cpu else ", pin_memory=True"
        wanted = -(-result.waited_ns // max(busy, 1)) + 1
        ratio = format_speedup(result.waited_ns / max(busy, 1))
        if wanted <= STARVED.limit("workers"):
            return (
                f"set num_workers={wanted} or more (fetching takes {ratio} as long as the rest of the step),"
                f" persistent_workers=True{pinned}"
            )
        # so many may be more than the machine has cores: beyond these, workers take turns
        return (
            f"set num_workers to the cores that training leaves free, persistent_workers=True{pinned}; about {wanted} hide all"
            f" waiting (fetching takes {ratio} as long as the rest of the step), with fewer make batches cheaper as well"
            f" ({_cheaper(result, 'decode once, cache')})"
        )
    if result.loader == OPERATORS:
        return MADE_FIX.format(result.maker)
    if result.loader == UNMARKED:
        return (
            "give the DataLoader workers, or more of them if cores are free (num_workers; 0 makes each batch inside the"
            " step), with persistent_workers=True and pin_memory=True; or make batches cheaper: cached decoding, GPU"
            " decoding"
        )
    on_gpu = "" if result.scope.is_cpu else ", GPU decoding"
    if result.loader == OF_THREAD:
        return _fix_of_thread(result)
    slow = result.slow_worker
    if slow is not None:
        return (
            f"find why worker {slow.number} is slow: what it reads (its shard, its storage), or the samples that it got; with"
            " DataLoader(in_order=False) the others go ahead of it"
        )
    if result.is_late_for_cores:
        return (
            f"measure again on cores that nothing else uses: the workers fetch for {format_fraction(result.workers_busy or 0)} of their"
            " time and the training thread itself waits for cores, so batches may be late for want of cores"
        )
    if result.keeps_up:
        return (
            f"more workers help little, they fetch for {format_fraction(result.workers_busy or 0)} of their time: make the batches that"
            " come late cheaper, or hide them behind a higher prefetch_factor; hand over few large tensors, which are"
            " quicker than many small ones or Python objects"
        )
    cheaper = _cheaper(result, f"cached decoding, larger sequential reads{on_gpu}")
    if result.own_share is not None and result.loader == "workers":
        ran = f"the job runs on {format_fraction(result.own_share)} of the cores' time"
        if result.own_share >= STARVED.limit("free"):
            return f"make batches cheaper: {cheaper}; more workers do not help, {ran} already"
        if not result.is_crowded:
            return f"use more workers: {ran}; or make batches cheaper: {cheaper}"
    return f"use more workers if cores are free, or make batches cheaper: {cheaper}; a higher prefetch_factor helps only where some batches take longer than others"


def _fix_of_thread(result: InputWaits) -> str:
    """Processes where it computes; more threads where it waits."""
    who = result.feeders[0].shown if result.feeders else "that makes them"
    if result.is_feeder_waiting:
        return (
            f"let several threads do what the thread {who} does, each ahead of the step, or read more at a time: it mostly"
            " waits itself; a DataLoader with num_workers does that in processes"
        )
    return (
        f"make the batches in processes (a DataLoader with num_workers), not in the thread {who}: it runs Python, one thread at"
        " a time can; or decode once and store the result"
    )
