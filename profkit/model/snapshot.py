"""What a memory snapshot of PyTorch's allocator says, device by device, bytes."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class MemoryPhase(StrEnum):
    """What ran when memory was allocated, as the innermost frame that tells it says, in the order of reports."""

    MODEL = "model"
    """Modules being made or moved to the device: parameters and buffers."""
    FORWARD = "forward"
    """Calls of modules: activations."""
    BACKWARD = "backward"
    """Gradients, of parameters and in between."""
    OPTIMIZER = "optimizer"
    """Its state."""
    OTHER = "other"
    """Other Python code."""
    UNKNOWN = "unknown"
    """No stack that tells, or before the history began."""


class MemoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """Memory allocated in one phase."""

    phase: MemoryPhase
    n: int | None
    """Blocks; None where not all are known."""
    n_bytes: int


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that one place allocated."""

    where: str
    """`train.py:83 in step()`: the innermost frame of the user's own code, else of a library; "" without a stack."""
    is_own: bool
    """Whether it is the user's own code."""
    n: int
    n_bytes: int
    largest_bytes: int


class SnapshotPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of the recorded history at which most was allocated."""

    n_bytes: int
    """As it was asked for, without rounding."""
    n_events_before_end: int
    """How many events of the history come after it."""
    earlier_bytes: int
    """What was allocated before the history began."""
    holdings: tuple[Holding, ...]
    """What holds the rest, the largest first."""
    phases: tuple[MemoryShare, ...]
    """In which phase all of `n_bytes` was allocated."""


class SnapshotDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device when the snapshot was taken, and its peak in the recorded history."""

    device: int
    n_segments: int
    n_blocks: int
    reserved_bytes: int
    """From the driver."""
    allocated_bytes: int
    """In tensors, each rounded up to its block."""
    requested_bytes: int | None
    """The same as it was asked for; None where it was not recorded."""
    pending_bytes: int
    """Freed, and still in use on another stream."""
    split_bytes: int
    """Free, in segments of which other parts are in use: it cannot go back to the driver."""
    cached_bytes: int
    """Free, in segments that are wholly free."""
    largest_free_bytes: int
    """The largest free block."""
    holdings: tuple[Holding, ...]
    """What holds `allocated_bytes`, the largest first."""
    phases: tuple[MemoryShare, ...]
    """In which phase `allocated_bytes` were allocated."""
    largest: tuple[Holding, ...]
    """The largest single blocks."""
    peak: SnapshotPeak | None
    """None where no history was recorded."""
    n_events: int
    n_failed: int
    """Allocations of the history that failed for want of memory."""
    failed_bytes: int
    """The last of these."""
    failed_free_bytes: int | None
    """What the device had left then."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: the devices with memory, by number."""

    source: str
    n_bytes: int
    has_stacks: bool
    devices: tuple[SnapshotDevice, ...]
