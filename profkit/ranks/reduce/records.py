"""What one rank tells the others: a row for each collective, step and wait, and a bounded number of names.

So it grows with the collectives, not with the trace. All times are int64 ns since the rank's own `origin_unix_ns`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.model.arrays import I64
from profkit.model.table import Table
from profkit.model.trace import I8, I32, Connection

PHASES: Final = ("data", "compute", "host", "copy", "device")
"""What a rank does between two collectives; the columns of `lead_ns` and `phase_ns`, in this order.

"device": it is idle although work was launched long ago, as where another process has its turn on a shared device.
"""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as one rank names it. `ranks` is () and `size` 0 where the trace does not say."""

    name: str = ""
    ranks: tuple[int, ...] = ()
    size: int = 0


class Asked(Table, frozen=True, kw_only=True):
    """A rank's collectives in the order in which its host issued them.

    `group` indexes their groups; `name` and `dtype` are codes into strings (`NO_CODE`: none); `kind` is a
    `CollectiveKind`. Elements are `UNKNOWN` and `seq` -1 where the trace does not say, and so is `peer`, the rank at
    the other end of a send or receive.
    """

    group: I32
    kind: I8
    name: I32
    dtype: I32
    in_elements: I64
    out_elements: I64
    seq: I64
    peer: I64
    issued_ns: I64
    """When the host asked for it; `start_ns` where that is not known."""
    start_ns: I64
    end_ns: I64


class CollectiveRows(Asked, frozen=True, kw_only=True):
    """The same in a summary, whose groups, strings and steps the columns index; `step` is -1 outside of all."""

    step: I32
    issuer: I32
    """The outermost operator that asked for it (an autograd node, mostly); none where the script asked itself."""
    hidden_ns: I64
    """How much of it this rank's compute covers or its host needs anyway, or lies outside of the window."""
    exposed_once_ns: I64
    """How much of it is exposed and runs beside none of its group that began before: what adds up to their union."""
    lead_ns: I64
    """[n, 5]: what the rank did, by `PHASES`, since its last collective had ended."""
    ready_ns: I64
    """When it could have begun as far as its own rank goes: asked for, and what it carries computed."""
    own_ns: I64
    """[n, 5]: what the rank did, by `PHASES`, since the collective before was ready, waits (`BlockRows`) left out."""
    bucket_bytes: I64
    """Of a gradient bucket that runs on gloo, by recorded shapes: the message; `UNKNOWN` of all else.

    Apart from the elements, by which ranks are matched: of one capture some ranks may have shapes and others none.
    """


class BlockRows(Table, frozen=True, kw_only=True):
    """When the rank did nothing but wait for a collective; disjoint, in time order.

    `row` points into `CollectiveRows`: the collective whose end released the rank, at `end_ns`.
    """

    start_ns: I64
    end_ns: I64
    row: I64


class StepRows(Table, frozen=True, kw_only=True):
    """A rank's steps; `phase_ns` [n, 5] by `PHASES`, `comm_ns` communication with nothing beside it.

    The counts are what the script told `profkit.capture.step`, 0 where it told nothing.
    """

    number: I64
    start_ns: I64
    end_ns: I64
    phase_ns: I64
    comm_ns: I64
    tokens: I64
    padded_tokens: I64
    samples: I64
    embedded: I64
    """Indices that the step's widest embedding looked up, from recorded shapes: padded tokens as far as those tell."""


class NameRows(Table, frozen=True, kw_only=True):
    """Names with how often and how long; for kernels `shape` tells launches of different size apart (0 otherwise)."""

    name: I32
    shape: I64
    count: I64
    total_ns: I64
    median_ns: I64


class LeadRanges(Table, frozen=True, kw_only=True):
    """The longest host ranges before a collective: operators and the script's own ranges, by name.

    `row` points into `CollectiveRows`; a range counts for the next collective issued after it began, up to there.
    """

    row: I64
    name: I32
    total_ns: I64


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, as far as the other ranks matter to it, without its tables."""

    rank: int
    world_size: int
    source: str
    host: str
    """The host's name as the trace writes it, "" if it does not."""
    origin_unix_ns: int
    window_ns: tuple[int, int]
    step_source: str
    groups: tuple[Group, ...]
    strings: tuple[str, ...]
    is_cpu: bool = False
    """Whether the CPU is the device: then ranks of one host share its cores."""
    connections: tuple[Connection, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    """The shape of what the first layer is given, by step; () where no shapes were recorded."""
    batch_place: str = ""
    """On a CPU: the line of the user's code that makes the batches, in words; "" where that is not known."""
    unasked_ns: int = 0
    """Of the window, communication alone under which the host had not asked for the next compute."""
    busy_ns: tuple[int, int] | None = None
    """Of the window, what the host did itself, its loader included, at least and at most; None if not known.

    Calls that wait for the device are none of it; between the two lies time of which nothing is recorded.
    """


class RankSummary(RankFacts, frozen=True, kw_only=True):
    """One rank, as far as the other ranks matter to it."""

    collectives: CollectiveRows
    steps: StepRows
    ranges: NameRows
    """Host ranges by name, the longest in all first."""
    lead_ranges: LeadRanges
    quiet: LeadRanges
    """Host time before a collective in which the trace has nothing, by the name of what the host did next."""
    work: NameRows
    """Compute kernels (on a CPU: operators) by name and shape, the longest in all first."""
    blocks: BlockRows

    def name(self, code: int) -> str:
        """The string behind a code; "" for none."""
        return self.strings[code] if code >= 0 else ""


TABLES: Final[dict[str, type[Table]]] = {
    "collectives": CollectiveRows,
    "steps": StepRows,
    "ranges": NameRows,
    "lead_ranges": LeadRanges,
    "quiet": LeadRanges,
    "work": NameRows,
    "blocks": BlockRows,
}
"""The tables of a summary, by field."""
