"""The least time that work takes on a device, and which limit sets it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from profkit.model.kernel_names import Precision
from profkit.roof.formulas.work import Work
from profkit.roof.peaks import Peak

STREAMED: Final = 2.5
"""Times the largest cache from which on data comes from memory. Measured: in reference traces elementwise operators on
1 to 2.1 times the cache take as little as 0.7 of the time that the bandwidth allows, on more never less than 1.05."""

_IN_CACHE: Final = 2
"""Times the largest cache that never reach memory while a call runs: what it reads from the cache, and what it leaves
there. An RTX 4090 (72 MiB) so takes 131 us for 268 MB, half of what its bandwidth alone allows."""


class Limit(StrEnum):
    """What sets the least time."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Roof(msgspec.Struct, frozen=True):
    """The least time of one call, ns, and what sets it.

    `sure_ns` is what even a call takes that finds the cache full of its operands and leaves it full of its result: no
    call takes less.
    """

    least_ns: float
    sure_ns: float
    limit: Limit


def roof_of(work: Work, peak: Peak, precision: Precision) -> Roof | None:
    """The roof of one call in this number format; None where neither its arithmetic nor its memory sets one.

    Only products of matrices have a roof of arithmetic. Of data that is little larger than the largest cache much may
    never reach memory: there memory sets no roof of what computes next to nothing, and none that is sure of a product.
    Where the format has no peak nothing is said of a product.
    """
    memory_ns = (work.n_bytes or 0) / peak.bytes_per_s * 1e9
    sure_ns = max((work.n_bytes or 0) - _IN_CACHE * peak.cache_bytes, 0) / peak.bytes_per_s * 1e9
    is_streamed = (work.n_bytes or 0) > STREAMED * peak.cache_bytes
    if not work.is_matrix:
        return Roof(memory_ns, sure_ns, Limit.MEMORY) if is_streamed else None
    rate = peak.flop_per_s.get(precision)
    if rate is None or not work.least_flops:
        return None
    compute_ns = work.least_flops / rate * 1e9
    least_ns = max(compute_ns, memory_ns)
    limit = Limit.COMPUTE if compute_ns >= memory_ns else Limit.MEMORY
    return Roof(least_ns, max(compute_ns, sure_ns), limit)
