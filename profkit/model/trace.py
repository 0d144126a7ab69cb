"""The trace as values: what every reader gives and every analyzer takes.

CPU rows and device rows never share a table. All times are int64 ns since `Trace.origin_unix_ns` (which is 0 where the
trace does not say), rows of every table are sorted by `start_ns`, strings are codes into `Trace.strings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, Whole, distinct, distinct_codes, is_one_of
from profkit.model.signature import Signature
from profkit.model.table import Table

if TYPE_CHECKING:
    import pandas as pd

I32 = NDArray[np.int32]
I8 = NDArray[np.int8]


class Kind(IntEnum):
    """What a row of device work is; `names.kind_of` tells it by the name."""

    COMPUTE = 0
    COMM = 1
    COPY = 2


class CallKind(IntEnum):
    """What a runtime or driver call does, told by its name."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY = 3
    SYNC = 4
    ALLOC = 5
    CAPTURE = 6


class SpanKind(IntEnum):
    """What a host range stands for, told by its name."""

    OTHER = 0
    STEP = 1
    LOADER = 2
    OPTIMIZER = 3
    COMM = 4
    GC = 5
    COMPILED = 6
    COMPILING = 7


class GpuWork(Table, frozen=True, kw_only=True):
    """Device activity: kernels, copies, memsets, one row each.

    `launch_row` points into `RuntimeCalls`, `NO_ROW` where the trace holds no call of that correlation.
    `n_bytes` is -1 and `grid`/`block` are 0 where the trace does not say; `graph_node` is 0 outside CUDA graphs.
    """

    start_ns: I64
    end_ns: I64
    name: I32
    kind: I8
    device: I32
    stream: Whole
    correlation: Whole
    launch_row: I64
    external_id: Whole
    n_bytes: I64
    grid: I32  # [n, 3] blocks
    block: I32  # [n, 3] threads
    graph_node: Whole


class Collectives(Table, frozen=True, kw_only=True):
    """The collective arguments that device rows carry; `gpu_row` points into `GpuWork`."""

    gpu_row: I64
    collective: I32
    dtype: I32
    in_elements: I64
    out_elements: I64
    group_size: I64
    group_name: I32
    group_ranks: I32
    seq: I64
    peer: I64
    """The rank that a send goes to or a receive comes from, -1 where the trace does not say."""


class CpuOps(Table, frozen=True, kw_only=True):
    """Host operators (`aten::...`, autograd nodes, legacy profiler rows); `thread` indexes `Trace.threads`.

    `sequence` is autograd's number, which a forward operator and the backward node it made share (both carry it;
    `forward_thread` is above 0 on the backward side, and the thread that ran the forward one). `signature` indexes
    `Trace.signatures`. All three are -1 where the trace does not say.
    """

    start_ns: I64
    end_ns: I64
    name: I32
    thread: I32
    external_id: Whole
    sequence: Whole
    forward_thread: Whole
    signature: I32


class ShapesDoubt(StrEnum):
    """Why the timed steps may not have had the shapes of the later ones."""

    COUNTS = "counts"
    """The script told other counts of tokens or samples."""
    LAUNCHES = "launches"
    """Kernels, grids or copies differ from step to step."""
    TIMES = "times"
    """On a CPU products take much longer in one step than in another."""


class Spans(Table, frozen=True, kw_only=True):
    """Named host ranges: `record_function`, the profiler's own annotations, profiler overhead."""

    start_ns: I64
    end_ns: I64
    name: I32
    kind: I8
    thread: I32


class RuntimeCalls(Spans, frozen=True, kw_only=True):
    """CUDA/HIP/MTIA runtime and driver calls on the host."""

    correlation: Whole
    external_id: Whole


class PythonFrames(Spans, frozen=True, kw_only=True):
    """Calls of Python functions, named `file.py(12): function`, `<built-in ...>` or `nn.Module: Linear_0`.

    `frame_id` is a call's own number and `parent_id` its caller's; `module_id` tells apart the modules of one class.
    They are -1 where the trace does not say.
    """

    frame_id: I64
    parent_id: I64
    module_id: I64


class DeviceSpans(Table, frozen=True, kw_only=True):
    """Ranges on the device timeline that are not activity: projected annotations, sync rows."""

    start_ns: I64
    end_ns: I64
    name: I32
    device: I32
    stream: Whole


class MemoryEvents(Table, frozen=True, kw_only=True):
    """Allocator events; `device_type` 0 is the host, 1 CUDA; `n_bytes` is negative for a free.

    `address` and the totals after the event are -1 where the trace does not say.
    """

    start_ns: I64
    thread: I32
    address: I64
    n_bytes: I64
    allocated_bytes: I64
    reserved_bytes: I64
    device_type: Whole
    device: Whole


class Flows(Table, frozen=True, kw_only=True):
    """Ends of forward-to-backward arrows; `is_start` is 1 on the forward side. Launch arrows repeat `correlation`."""

    start_ns: I64
    flow_id: I64
    thread: I32
    is_start: I8


class CpuSamples(Table, frozen=True, kw_only=True):
    """Moments at which a host thread ran on a CPU (nsys only, where it sampled); codes are -1 where that is not known.

    `name` is the function that ran and `module` the file that holds it; `caller` is the innermost function of the
    program's own around it, or itself: not of the C library, the driver or Python's interpreter.
    """

    start_ns: I64
    thread: I32
    name: I32
    module: I32
    caller: I32


EMBEDDED: Final = "embedding "


class CountedWork(Table, frozen=True, kw_only=True):
    """What a script told `profkit.capture.step` its steps worked on, at the end of each: one row for each kind.

    `name` is "tokens" (real ones), "padded_tokens" (all, with padding) or "samples"; a kind not told has no row.
    Where shapes were recorded there is also a row for each call of an embedding, named by `EMBEDDED` and the shape of
    its table, at the call's start: the number of indices it looked up.
    """

    start_ns: I64
    name: I32
    value: NDArray[np.float64]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One training step `[start_ns, end_ns)`; `number` is the job's own where a marker carries it."""

    index: int
    number: int
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """Length in ns."""
        return self.end_ns - self.start_ns


DEVICE_STEPS: Final = "device"
"""The source of steps that begin where the device begins the work of a marked step."""
RANGED_STEPS: Final = "ranges"
"""The source of steps that the user's own ranges show, whatever these are called."""


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A host thread: ids as the trace writes them."""

    pid: str
    tid: str
    name: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the trace describes it; 0 and "" where it does not say."""

    index: int
    name: str = ""
    n_sms: int = 0
    memory_bytes: int = 0


class TraceWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the input that is not as it should be; shown in the report, never quietly repaired."""

    id: str
    message: str
    count: int = 1


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What traces of one kind hold, and what their user can do to have more in them: asked instead of the format.

    Each kind of source declares its own (`profkit/ingest/*/source.py`).
    """

    format: str
    """As the report's JSON calls it."""
    tool: str
    """What wrote them."""
    step_source: str
    """What marks their steps, as the report's JSON calls it."""
    step_marks: str
    """The same in a sentence: "no ... in this trace"."""
    has_host_calls: bool
    """Whether they show what the host called even where no operator was recorded."""
    is_system_wide: bool
    """Whether their tool records the operating system as well."""
    recapture: str
    """The command, before the user's own, that records them again, better."""
    how_to_mark_steps: str
    how_to_mark_input: str
    how_to_have_operators: str
    how_to_be_steady: str


MOST_LISTED: Final = 256
"""Objects of a list in the metadata that are read. Chosen: a capture writes a few, a file may hold any number."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a TCP connection of a rank's host, as its kernel counted while steps were recorded. Times in ns."""

    id: str
    """The same at both ends; no address can be read from it."""
    end: int
    """Which of the two ends this is, 0 or 1."""
    acked_bytes: int
    """What this end sent and the other acknowledged."""
    busy_ns: int
    """How long what it sent was under way, or stood in line for the link: without the time in which the other end had
    no room for more, or a buffer of this end was too small."""
    resent_bytes: int


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of itself; `metadata` holds the rest, secrets redacted."""

    source: str
    traits: Traits
    n_in_source: int = 1
    """Traces that the same source holds, this one among them."""
    n_events: int = 0
    n_bytes: int = 0
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    torch_version: str | None = None
    has_stacks: bool = False
    frames_have_lines: bool = False
    """Whether the numbers in names of Python frames are lines that run, not those where functions begin."""
    has_shapes: bool = False
    has_memory: bool = False
    unprofiled_step_ns: int | None = None
    profiled_step_ns: int | None = None
    """The mean step beside and during the recording, by the clock of the capture, without rare long ones."""
    scheduling: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What the host's scheduler counted over the recorded steps, as `profkit capture` read it: times in ns, switches,
    and what it had to share: `cores`, `threads`, `ranks`."""
    clocks: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Samples of the device's clock over the recorded steps, as `profkit capture` took them, in short: `n` of them,
    clocks in MHz, how many were held back for which reason, mW, degrees."""
    connections: tuple[Connection, ...] = ()
    """Of one rank among several: its connections over the recorded steps, as the kernel counts."""
    devices: tuple[Device, ...] = ()
    categories: Mapping[str, int] = msgspec.field(default_factory=dict)
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    command: str = ""
    """What the user runs: the recorded command where this user's own capture wrote it (`profkit.signing`), else ""."""

    @property
    def has_sampled_stacks(self) -> bool:
        """Whether its Python stacks are samples: frames now and then, and no modules."""
        return self.metadata.get("profkit_places_sampled") is True

    def listed(self, key: str) -> list[Mapping[str, Any]]:
        """The first objects of a list in `metadata`; none of anything else."""
        told = self.metadata.get(key)
        return [one for one in told[:MOST_LISTED] if isinstance(one, Mapping)] if isinstance(told, list) else []


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One process's trace. Built only by `ingest.build` and `profkit.testing.draw`."""

    meta: TraceMeta
    origin_unix_ns: int
    strings: tuple[str, ...]
    threads: tuple[Thread, ...]
    gpu: GpuWork
    collectives: Collectives
    ops: CpuOps
    calls: RuntimeCalls
    spans: Spans
    python: PythonFrames
    overhead: Spans
    waits: Spans
    """Calls of the operating system (nsys only): waits for locks and threads, polls, reads."""
    device_spans: DeviceSpans
    sync_rows: DeviceSpans
    memory: MemoryEvents
    flows: Flows
    samples: CpuSamples
    work: CountedWork
    steps: tuple[Step, ...]
    step_source: str
    window_ns: tuple[int, int]
    warnings: tuple[TraceWarning, ...] = ()
    signatures: tuple[Signature | None, ...] = ()
    """The distinct arguments of operators, where shapes were recorded; None for those that cannot be read."""
    shapes_carried: float | None = None
    """Of the operators in steps that take arguments, the share whose `signature` is that of the same operator of
    `again`, 0-1; None where the arguments, if any are known, were recorded with the operators."""
    shapes_doubt: ShapesDoubt | None = None
    """What speaks against these, where none of them is left."""
    again: Trace | None = None
    """Steps of the same process that its capture recorded once more, with Python stacks: places in code, no times."""

    @property
    def device_indices(self) -> tuple[int, ...]:
        """Devices that have activity, in order."""
        return tuple(int(index) for index in distinct(self.gpu.device))

    @property
    def is_marked(self) -> bool:
        """Whether its steps are ranges of the host."""
        return bool(self.steps) and self.step_source in {self.meta.traits.step_source, RANGED_STEPS}

    @property
    def window_duration_ns(self) -> int:
        """Length of the window under analysis."""
        return self.window_ns[1] - self.window_ns[0]

    def to_pandas(self, table: str = "gpu") -> pd.DataFrame:
        """A table ("gpu", "ops", "calls", "steps", ...; see `model.frames.TABLES`) as a DataFrame that can be read.

        Names, kinds, threads and shapes are decoded, `duration_ns` and `step` are added, and what the trace does not
        say is absent. Raises UsageError for another name.
        """
        from profkit.model.frames import frame_of

        return frame_of(self, table)

    def name(self, code: int) -> str:
        """The string behind a code; "" for none."""
        return self.strings[code] if code >= 0 else ""

    def named(self, names: NDArray[np.int32], pattern: re.Pattern[str] | str | tuple[str, ...]) -> Bool:
        """Per row of a column of names, shape (n,): whether its name has the pattern, or begins with a text."""
        if isinstance(pattern, (str, tuple)):
            codes = [code for code in distinct_codes(names).tolist() if self.strings[code].startswith(pattern)]
        else:
            codes = [code for code in distinct_codes(names).tolist() if pattern.search(self.strings[code])]
        return is_one_of(names, codes)

    def given(self, row: int) -> Signature | None:
        """What an operator takes; None where that was not recorded."""
        code = int(self.ops.signature[row])
        return self.signatures[code] if code >= 0 else None

    def device_name(self, index: int) -> str:
        """What the file calls a device; "" where it says nothing."""
        return next((device.name for device in self.meta.devices if device.index == index), "")

    def memory_bytes(self, index: int) -> int:
        """How much memory a device has; 0 where the file says nothing."""
        return next((device.memory_bytes for device in self.meta.devices if device.index == index), 0)
