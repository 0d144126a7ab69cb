"""What the device waits for: data, copies of batches, calls of the host that wait for it, launches."""

from __future__ import annotations

from typing import Final

from profkit.compare.captures.pair import Pair, Reading, change, counts_moved, measure, moved, reading
from profkit.compare.captures.sides import Side
from profkit.findings import changes, comparison
from profkit.model.budget import HOST_PARTS
from profkit.model.finding import Evidence
from profkit.model.names import COPIES_TO_DEVICE
from profkit.units import format_bytes, format_fraction, format_ns

_MORE: Final = 10
"""Launches per step that one side has more at least where that is worth a caveat. Chosen."""
_WAITING: Final = {"aten::_local_scalar_dense": ".item()", "aten::nonzero": "nonzero"}
"""Operators that copy to the host and wait: scalars; masks, which become indices."""
_KIND_WORDS: Final = {
    "single-process": "the training process (num_workers=0)",
    "workers": "worker processes",
    "custom": "a custom loader",
}


def rest(pair: Pair, taken: frozenset[str]) -> tuple[Reading, ...]:
    """Calls that wait for the device, and late launches, where nothing before stands for them."""
    called = allocator(pair, taken)
    waits = syncs(pair, taken, apart_ns=0 if called is None else called.explained_ns or 0)
    launched = host(pair, taken if waits is None else taken | set(waits.claims))
    return tuple(item for item in (called, waits, launched) if item is not None)


def loader(pair: Pair) -> Reading | None:
    """The input pipeline: data waits changed, or batches are made elsewhere and that changed nothing."""
    has_effect = abs(pair.fraction(pair.change("idle_data"))) >= comparison.INPUT.limit("effect")
    named = _made_elsewhere(pair)
    if not has_effect and named is None:
        return None
    data = pair.part_name("idle_data")
    effect = f"{data} {'falls' if pair.change('idle_data') < 0 else 'rises'}"
    title, seen = effect, []
    if named is not None:
        short, one = named
        title, seen = (f"{effect}: {short}" if has_effect else f"{short}, but no less {data}"), [one]
    return reading(
        comparison.INPUT,
        title,
        *(pair.part_shown("idle_data"), *(seen or _workers_of_one(pair))),
        fix="to reduce the remaining wait, use more workers or less work per sample"
        if pair.waterfall.bar("idle_data").candidate_ns
        else "the input pipeline keeps up now: look for another cause",
        confidence=0.8 if seen and has_effect else 0.6,
        claims=("idle_data",),
    )


def _made_elsewhere(pair: Pair) -> tuple[str, Evidence] | None:
    """Where batches are made now, in short and as evidence, if they were made elsewhere or by other workers before."""
    made = [{name for trace in side.traces for name in trace.counts.made_by} for side in pair.sides]
    kinds = [
        {trace.counts.loader for trace in side.traces if trace.counts.loader in _KIND_WORDS} for side in pair.sides
    ]
    n_workers = [_n_workers(side) for side in pair.sides]
    if made[0] != made[1]:
        now = int(bool(made[1] - made[0]))
        short = f"{' and '.join(sorted(made[now] - made[1 - now]))} makes batches {'now' if now else 'no more'}"
        return short, measure("its kernels run on the device on one side only", "loader_kind_changed", 1, "flag")
    if kinds[0] != kinds[1] and all(kinds):
        told = [" or ".join(_KIND_WORDS[kind] for kind in sorted(kind)) for kind in kinds]
        said = f"batches are now made in {told[1]}, before in {told[0]}"
        return f"batches come from {told[1].partition(' (')[0]} now", measure(said, "loader_kind_changed", 1, "flag")
    if n_workers[0] != n_workers[1] and all(n_workers):
        short = f"{n_workers[1]} loader workers, before {n_workers[0]}"
        said = f"{n_workers[1]} other processes are at work beside the job, before {n_workers[0]}"
        return short, change(said, "workers", n_workers, "count")
    return None


def _workers_of_one(pair: Pair) -> list[Evidence]:
    """How many workers the only side has of which that is known."""
    known = {side.name: n for side in pair.sides if (n := _n_workers(side))}
    if len(known) != 1:
        return []
    ((name, n),) = known.items()
    said = f"loader workers at work: {n} on the side of the {name}, not recorded on the other"
    return [measure(said, "workers_of_one", n, "count")]


def _n_workers(side: Side) -> int:
    return max(trace.counts.n_workers for trace in side.traces)


def pinned(pair: Pair) -> Reading | None:
    """Batches are copied from memory of another kind."""
    kind = changes.PINNED
    size = [_bytes_from(pair, side) for side in (0, 1)]
    total = [sum(sizes.values()) for sizes in size]
    if min(total) < kind.limit("bytes"):
        return None
    shares = [sizes["Pinned"] / whole for sizes, whole in zip(size, total, strict=True)]
    if abs(shares[1] - shares[0]) < kind.limit("share"):
        return None
    is_on = shares[1] > shares[0]
    calls = pair.rates(lambda trace: trace.counts.syncs)
    non_blocking = is_on and calls[1] <= calls[0] - 1
    said = f"of {format_bytes(total[1])} to the device {pair.per}, {moved(shares, format_fraction)}"
    return reading(
        kind,
        f"batches are copied from {'pinned' if is_on else 'pageable'} memory"
        + (", and the host no longer waits for them (non_blocking)" if non_blocking else ""),
        change(f"{said} come from pinned memory", "pinned_share", shares, "fraction"),
        pair.part_shown("copy_exposed"),
        _syncs_shown(pair),
        fix="with non_blocking=True the host goes on while a pinned batch is copied"
        if is_on
        else "pin_memory=True in the DataLoader, non_blocking=True where batches are copied",
        confidence=0.8,
        claims=("copy_exposed", "idle_sync") if non_blocking or not is_on else ("copy_exposed",),
    )


def streams(pair: Pair) -> Reading | None:
    """Batches are copied on a stream of their own, beside the kernels, or no longer; and what that hides."""
    kind = changes.COPY_STREAM
    size = pair.rates(lambda trace: trace.counts.copied_bytes)
    apart = pair.rates(lambda trace: trace.counts.apart_bytes)
    if not pair.shows_kernels or min(size) < kind.limit("bytes"):
        return None
    shares = [own / whole for own, whole in zip(apart, size, strict=True)]
    if abs(shares[1] - shares[0]) < kind.limit("share"):
        return None
    is_on = shares[1] > shares[0]
    taken = pair.rates(lambda trace: trace.counts.copied_ns)
    hidden = pair.rates(lambda trace: trace.counts.hidden_copy_ns)
    under = f"{format_ns(hidden[1])} of their {format_ns(taken[1])}" if hidden[1] else "none"
    said = f"of {format_bytes(size[1])} to the device {pair.per}, {moved(shares, format_fraction)}"
    times = f"{moved(taken, format_ns)}, under compute {moved(hidden, format_ns)} {pair.per}"
    is_pageable = _bytes_from(pair, 1)["Pageable"] > size[1] / 2
    return reading(
        kind,
        f"copies to the device {'' if is_on else 'no longer '}run on a stream of their own: compute hides {under}",
        change(f"{said} on streams without kernels", "copy_stream_share", shares, "fraction"),
        change(f"copies to the device {times}", "hidden_copies", hidden),
        pair.part_shown("copy_exposed"),
        fix="from pageable memory the host waits for each copy, so nothing runs beside it: pin_memory=True and"
        " non_blocking=True"
        if is_pageable
        else "issue the copy of the next batch before the kernels of this one: no copy hides more than they take",
        confidence=0.8,
        claims=("copy_exposed",),
    )


def _bytes_from(pair: Pair, side: int) -> dict[str, float]:
    """Bytes copied to the device per step, from pinned and from pageable memory."""
    return {
        memory: pair.rate(
            side,
            lambda trace, memory=memory: sum(  # type: ignore[misc]
                n_bytes
                for name, (_, _, n_bytes) in trace.counts.copies.items()
                if COPIES_TO_DEVICE.search(name) and f"({memory} " in name
            ),
        )
        for memory in ("Pinned", "Pageable")
    }


def allocator(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The part of the idle time after calls that wait which is the allocator's."""
    kind = changes.ALLOCATOR
    if pair.is_cpu or "idle_sync" in taken or any(trace.slow for trace in pair.traces):
        return None
    before, after = pair.rates(lambda trace: min(trace.counts.allocator_ns, trace.device.budget.idle_sync))
    if abs(pair.fraction(after - before)) < kind.limit("effect"):
        return None
    what = "idle in cudaMalloc, cudaFree and their kin, and right behind them:"
    return reading(
        kind,
        f"the device idles {'longer' if after > before else 'less long'} in calls of the allocator",
        pair.time_shown(what, "allocator", (before, after)),
        pair.counted("allocator calls", "allocator_calls", lambda trace: trace.counts.allocator_calls),
        pair.part_shown("idle_sync"),
        fix="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or less memory: a smaller micro-batch with more"
        " accumulation, shapes of a few sizes",
        confidence=0.7,
        claims=("idle_sync",),
        explained_ns=round(after - before),
    )


def syncs(pair: Pair, taken: frozenset[str], apart_ns: int = 0) -> Reading | None:
    """The host waits for the device more or less often, or as often with more or less idle time behind it.

    A host that waits cannot run ahead: where it waits less often, launches come earlier as well. `apart_ns` of the
    change is said already, of the allocator's calls.
    """
    kind = comparison.SYNCS
    before, after = pair.rates(lambda trace: trace.counts.syncs)
    is_changed = max(before, after) >= max(kind.limit("ratio") * min(before, after), min(before, after) + 1)
    claims = tuple(name for name in ("idle_sync", *(HOST_PARTS if is_changed else ())) if name not in taken)
    cost = sum(pair.change(name) for name in claims) - apart_ns
    if abs(pair.fraction(cost)) < kind.limit("effect") or (is_changed and (after > before) != (cost > 0)):
        return None
    often = f"the host waits for the device {'more' if after > before else 'less'} often"
    long = f"the device idles {'longer' if cost > 0 else 'less long'} after calls that wait for it"
    return reading(
        kind,
        often if is_changed else long,
        _syncs_shown(pair),
        pair.part_shown("idle_sync"),
        *(_waiting_operators(pair) if is_changed else ()),
        *([pair.launches_shown()] if len(claims) > 1 else []),
        fix="look for .item(), .cpu(), nonzero and prints of tensors in the step",
        confidence=0.7 if is_changed else 0.5,
        claims=claims,
        explained_ns=cost if apart_ns else None,
    )


def _syncs_shown(pair: Pair) -> Evidence:
    return pair.counted("calls that wait for the device", "syncs", lambda trace: trace.counts.syncs)


def _waiting_operators(pair: Pair) -> tuple[Evidence, ...]:
    """Operators that make the host wait, and are called more or less often."""
    shown = (
        pair.counted(words, words.strip("."), lambda trace: trace.op_calls.get(name, 0))  # noqa: B023
        for name, words in _WAITING.items()
    )
    return tuple(one for one in shown if one.value)


def host(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The reading that the device waits more, or less, for the host to launch."""
    cost = sum(pair.change(name) for name in HOST_PARTS if name not in taken)
    if abs(pair.fraction(cost)) < comparison.LAUNCHES.limit("effect") or pair.is_cpu:
        return None
    return reading(
        comparison.LAUNCHES,
        f"the device waits {'longer' if cost > 0 else 'less'} for the host{_other_kernels(pair, cost)}",
        *sorted((pair.part_shown(name) for name in HOST_PARTS), key=lambda part: -abs(part.value)),
        pair.launches_shown(),
        fix="reduce launches with fused kernels or CUDA graphs; if their number is the same, check what else the host"
        " does"
        if cost > 0
        else "to reduce the remaining wait, launch less: fused kernels, CUDA graphs",
        confidence=0.6,
        claims=HOST_PARTS,
    )


def _other_kernels(pair: Pair, cost_ns: float) -> str:
    """That other kernels, fewer or more, do the work: fused ones, another library, another engine."""
    kind = comparison.LAUNCHES
    n = pair.rates(lambda trace: trace.counts.operators)
    if pair.hidden or abs(n[1] - n[0]) < kind.limit("fewer") * max(n) or (n[1] > n[0]) != (cost_ns > 0):
        return ""
    names = [{work.name for work in side} for side in pair.uses]
    shared = names[0] & names[1]
    own = pair.rates(lambda trace: trace.compute.time_ns(lambda work: work.name not in shared))
    if any(part < kind.limit("other") * whole for part, whole in zip(own, pair.compute_busy_ns, strict=True)):
        return ""
    return f": {'more' if cost_ns > 0 else 'fewer'}, other kernels do the work"


def launches(pair: Pair) -> str:
    """That one side launches far more in a step than the other, "" where it does not."""
    if not pair.shows_kernels or not pair.baseline.traces[0].has_steps:
        return ""  # of windows their kernels are compared already
    before, after = (round(rate, 1) for rate in pair.rates(lambda trace: trace.counts.launches))
    if max(before, after) < max(comparison.LAUNCHES.limit("unlike") * min(before, after), min(before, after) + _MORE):
        return ""
    counts = counts_moved((before, after), pair.per)
    return f"launches {counts}: unless the change was meant to do that, the sides do different work"
