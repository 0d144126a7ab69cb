"""What ranks exchange otherwise: gradients in other buckets, buffers of layers, copies of gradients."""

from __future__ import annotations

from typing import Final

from profkit.compare.captures.counts import NO_CALLS
from profkit.compare.captures.pair import Pair, Reading, change, counts_moved, is_within, moved, reading
from profkit.findings import changes
from profkit.units import format_bytes, format_ns

_WITHIN: Final = "DtoD"


def buckets(pair: Pair) -> Reading | None:
    """As many bytes are all-reduced in fewer, or in more pieces."""
    kind = changes.BUCKET_SIZE
    n, time, size = (_of(pair, "all-reduce", field) for field in ("n", "total_ns", "n_bytes"))
    if min(n) < 1 or max(n) < max(kind.limit("ratio") * min(n), min(n) + 1):
        return None
    if not _is_same(size, kind.limit("bytes")) or not _has_same_kernels(pair):
        return None
    told = f", {moved(size, format_bytes)}" if all(size) else ""
    return reading(
        kind,
        f"gradients are all-reduced in {'fewer, larger' if n[1] < n[0] else 'more, smaller'} buckets (bucket_cap_mb)",
        change(f"all-reduces {counts_moved(n)}{told}, {moved(time, format_ns, pair.per)}", "all_reduces", n, "count"),
        fix="the last bucket is exposed: larger ones cost fewer launches, smaller ones overlap more",
        confidence=0.7 if all(size) else 0.6,
        claims=("comm_exposed",),
    )


def broadcasts(pair: Pair) -> Reading | None:
    """Buffers are (no longer) broadcast in every step."""
    kind = changes.BUFFERS
    n, time = (_of(pair, "broadcast", field) for field in ("n", "total_ns"))
    if max(n) < kind.limit("broadcasts") or min(n) > kind.limit("gone") * max(n):
        return None
    if min(_of(pair, "all-reduce", "n")) < 1:
        return None
    is_more = n[1] > n[0]
    return reading(
        kind,
        f"buffers are {'broadcast' if is_more else 'no longer broadcast'} in each step (broadcast_buffers)",
        change(f"broadcasts {counts_moved(n)}, {moved(time, format_ns, pair.per)}", "broadcasts", n, "count"),
        fix="broadcast_buffers=False where no layer has buffers that must agree"
        if is_more
        else "keep it, unless buffers must agree between ranks (BatchNorm's statistics)",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def bucket_copies(pair: Pair) -> Reading | None:
    """Beside all-reduces, copies within the device come or go: gradients that leave their buckets.

    Buffers that are broadcast are copied, too: where these come or go, nothing tells whose copies they are.
    """
    kind = changes.BUCKET_COPIES
    if broadcasts(pair) is not None:
        return None
    n, time, size = (_copies(pair, place) for place in (0, 1, 2))
    if min(_of(pair, "all-reduce", "n")) < 1 or abs(n[1] - n[0]) < kind.limit("copies"):
        return None
    if min(size) > kind.limit("gone") * max(size) or not _has_same_kernels(pair):
        return None
    is_more = n[1] > n[0]
    said = f"{counts_moved(n)}, {moved(size, format_bytes)}, {moved(time, format_ns, pair.per)}"
    return reading(
        kind,
        f"DDP {'copies its gradients out of' if is_more else 'no longer copies its gradients out of'} their buckets"
        " (gradient_as_bucket_view)",
        change(f"copies within the device {said}", "bucket_copies", n, "count"),
        fix="gradient_as_bucket_view=True saves these copies, and the memory of the gradients"
        if is_more
        else "keep gradient_as_bucket_view=True",
        confidence=0.6,
        claims=("copy_exposed", "comm_exposed"),
    )


def collectives(pair: Pair) -> Reading | None:
    """Ranks exchange by collectives of another kind: a sharded job instead of a replicated one."""
    least = changes.COLLECTIVES.limit("calls")
    names = {name for trace in pair.traces for name in trace.counts.collectives}
    calls = {name: _of(pair, name, "n") for name in sorted(names - {"broadcast"})}
    came, went = (
        [name for name, both in calls.items() if both[side] >= least and both[1 - side] == 0] for side in (1, 0)
    )
    if not came or not went:
        return None
    return reading(
        changes.COLLECTIVES,
        f"ranks exchange by {' and '.join(came)}, before by {' and '.join(went)}",
        pair.comm_shown(),
        fix="compare peak memory as well: sharding trades communication for memory",
        confidence=0.8,
        claims=("comm_exposed",),
    )


def _of(pair: Pair, kind: str, field: str) -> tuple[float, float]:
    """A number of the collectives of one kind, per step, on both sides."""
    return pair.rates(lambda trace: getattr(trace.counts.collectives.get(kind, NO_CALLS), field))


def _copies(pair: Pair, place: int) -> tuple[float, float]:
    """How many copies within the device, for how long, with how many bytes, per step, on both sides."""
    return pair.rates(
        lambda trace: sum(counts[place] for name, counts in trace.counts.copies.items() if _WITHIN in name)
    )


def _has_same_kernels(pair: Pair) -> bool:
    return _is_same(pair.rates(lambda trace: trace.compute.work.size), changes.BUCKET_SIZE.limit("kernels"))


def _is_same(both: tuple[float, float], share: float) -> bool:
    """Whether two numbers agree within a share, or one is not known."""
    return is_within(share, both) or min(both) == 0
