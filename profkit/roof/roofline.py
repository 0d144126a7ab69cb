"""The least time that work takes on a device, and which limit sets it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from profkit.model.names import Precision
from profkit.roof.formulas.work import Work
from profkit.roof.peaks import Peak

STREAMED: Final = 2.5
"""Times the largest cache from which on data comes from memory. Measured: in reference traces elementwise operators on
1 to 2.1 times the cache take as little as 0.7 of the time that the bandwidth allows, on more never less than 1.05."""


class Limit(StrEnum):
    """What sets the least time."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Roof(msgspec.Struct, frozen=True):
    """The least time of one call, ns, and what sets it."""

    least_ns: float
    limit: Limit


def roof_of(work: Work, peak: Peak, precision: Precision) -> Roof | None:
    """The roof of one call in this number format; None where neither its arithmetic nor its memory sets one.

    Only products of matrices have a roof of arithmetic. Of data that is little larger than the largest cache much may
    never reach memory, so that memory sets no roof there. Where the format has no peak nothing is said of a product.
    """
    compute_ns = 0.0
    if work.is_matrix:
        rate = peak.flop_per_s.get(precision)
        if rate is None or work.least_flops is None:
            return None
        compute_ns = work.least_flops / rate * 1e9
    is_in_memory = work.n_bytes is not None and work.n_bytes > STREAMED * peak.cache_bytes
    memory_ns = (work.n_bytes or 0) / peak.bytes_per_s * 1e9 if is_in_memory else 0.0
    if not compute_ns and not memory_ns:
        return None
    return Roof(max(compute_ns, memory_ns), Limit.COMPUTE if compute_ns >= memory_ns else Limit.MEMORY)
