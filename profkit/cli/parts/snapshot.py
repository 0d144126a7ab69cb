"""A memory snapshot as lines of text, for `profkit info`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.snapshot import Holding, MemoryPhase, MemoryShare, Snapshot, SnapshotDevice
from profkit.units import format_bytes, format_fraction

_MOST: Final = 15
"""Places shown; JSON has more."""
_MOST_BLOCKS: Final = 5


def lines_of(snapshot: Snapshot) -> list[str]:
    """What a snapshot holds, device by device."""
    lines = [f"{snapshot.source}: memory snapshot of PyTorch's allocator, {format_bytes(snapshot.n_bytes)}"]
    for device in snapshot.devices:
        lines += ["", *_device(device)]
    if not snapshot.devices:
        lines += ["", "no device has memory"]
    elif not snapshot.has_stacks:
        record = "torch.cuda.memory._record_memory_history() before the allocations records them"
        lines += ["", f"no Python stacks: which line allocated what is not known; {record}"]
    return lines


def _device(device: SnapshotDevice) -> list[str]:
    reserved = device.reserved_bytes
    parts = (
        ("in tensors", device.allocated_bytes, ""),
        ("freed, in use on a stream", device.pending_bytes, ""),
        ("free beside tensors", device.split_bytes, "fragments: they cannot go back to the driver"),
        ("free segments", device.cached_bytes, "cached: torch.cuda.empty_cache() gives them back"),
    )
    lines = [f"device {device.device}   {format_bytes(reserved)} reserved in {device.n_segments:,} segments"]
    for name, n_bytes, note in parts:
        share = format_fraction(n_bytes / reserved) if reserved else "-"
        lines.append(f"  {name:26}{format_bytes(n_bytes):>10}{share:>9}  {note if n_bytes else ''}".rstrip())
    if device.largest_free_bytes:
        lines.append(f"  {'largest free block':26}{format_bytes(device.largest_free_bytes):>10}")
    if device.n_failed:
        left = (
            ""
            if device.failed_free_bytes is None
            else f", {format_bytes(device.failed_free_bytes)} were left on the device"
        )
        times = "an allocation" if device.n_failed == 1 else f"{device.n_failed:,} allocations"
        lines.append(f"  out of memory: {times} failed; the last asked for {format_bytes(device.failed_bytes)}{left}")
    lines += _table(
        f"what holds the {format_bytes(device.allocated_bytes)} in tensors", device.holdings, device.allocated_bytes
    )
    lines += _phases("when these were allocated", device.phases, device.allocated_bytes)
    peak = device.peak
    if peak is not None and peak.n_events_before_end:
        head = f"what held {format_bytes(peak.n_bytes)} at the peak, {peak.n_events_before_end:,} events before the end"
        earlier = (("before the history began", peak.earlier_bytes),) if peak.earlier_bytes else ()
        lines += _table(head, peak.holdings, peak.n_bytes, earlier)
        lines += _phases("when these were allocated", peak.phases, peak.n_bytes)
    if device.largest:
        lines += ["", "  largest blocks"]
        lines += [f"    {format_bytes(one.n_bytes):>10}  {_where(one)}" for one in device.largest[:_MOST_BLOCKS]]
    return lines


def _table(title: str, holdings: tuple[Holding, ...], total: int, earlier: Iterable[tuple[str, int]] = ()) -> list[str]:
    lines = ["", f"  {title}", f"    {'share':>7}{'bytes':>10}{'blocks':>9}{'largest':>10}  allocated at"]
    for name, n_bytes in earlier:
        lines.append(f"    {_share(n_bytes, total):>7}{format_bytes(n_bytes):>10}{'-':>9}{'-':>10}  {name}")
    for one in holdings[:_MOST]:
        sizes = f"{format_bytes(one.n_bytes):>10}{one.n:>9,}{format_bytes(one.largest_bytes):>10}"
        lines.append(f"    {_share(one.n_bytes, total):>7}{sizes}  {_where(one)}")
    if len(holdings) > _MOST:
        lines.append(f"    and {len(holdings) - _MOST:,} more places: -f json")
    return lines if holdings or len(lines) > 3 else []


_TOLD: Final = {
    MemoryPhase.MODEL: "the model is made or moved to the device: parameters, buffers",
    MemoryPhase.FORWARD: "forward, in modules: activations",
    MemoryPhase.BACKWARD: "backward: gradients, of parameters and in between",
    MemoryPhase.OPTIMIZER: "a step of the optimizer: its state",
    MemoryPhase.OTHER: "other code",
    MemoryPhase.UNKNOWN: "unknown: before the history began, or no stack that tells it",
}


def _phases(title: str, phases: tuple[MemoryShare, ...], total: int) -> list[str]:
    if all(one.phase in {MemoryPhase.OTHER, MemoryPhase.UNKNOWN} for one in phases):
        return []
    lines = ["", f"  {title}", f"    {'share':>7}{'bytes':>10}{'blocks':>9}  in"]
    for one in phases:
        n = "-" if one.n is None else f"{one.n:,}"
        lines.append(f"    {_share(one.n_bytes, total):>7}{format_bytes(one.n_bytes):>10}{n:>9}  {_TOLD[one.phase]}")
    return lines


def _share(n_bytes: int, total: int) -> str:
    return format_fraction(n_bytes / total) if total else "-"


def _where(one: Holding) -> str:
    if not one.where:
        return "no Python stack"
    return one.where if one.is_own else f"{one.where} (library)"
