"""Data-parallel ranks whose buckets run under the backward pass: whole traces of them, and the true step time."""

from collections.abc import Mapping

import msgspec
import numpy as np

from profkit.ranks.reduce.summary import summarise
from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline import Facts

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """`extra_ns`: per rank, what it takes longer each step, in the phase of `slow_phase`."""

    n_ranks: int = 3
    n_steps: int = 8
    n_buckets: int = 4
    forward_ns: int = 3 * MS
    backward_ns: int = 2 * MS
    transfer_ns: int = 1 * MS
    data_ns: int = 1 * MS
    extra_ns: Mapping[int, int] | None = None
    slow_phase: str = "compute"
    seed: int = 0


def run(job: Overlap):
    """Give the summaries and the mean step over all ranks, ns."""
    rng = np.random.default_rng(job.seed)
    ranks, buckets = job.n_ranks, job.n_buckets
    rows = [[] for _ in range(ranks)]
    now = np.full(ranks, 10 * MS, np.int64)
    begin, number = now.copy(), 1
    extra = np.array([(job.extra_ns or {}).get(rank, 0) for rank in range(ranks)])
    for step in range(job.n_steps):
        noise = rng.integers(-20 * US, 20 * US, (ranks, 2))
        data = job.data_ns + noise[:, 0] + extra * (job.slow_phase == "data")
        forward = job.forward_ns + noise[:, 1] + extra * (job.slow_phase == "compute")
        compute = [np.stack([now + data, now + data + forward])]
        for _ in range(buckets):
            compute.append(np.stack([compute[-1][1], compute[-1][1] + job.backward_ns]))
        reduced, free = [], np.zeros(ranks, np.int64)
        for bucket in range(buckets):
            start = np.maximum(compute[bucket + 1][1], free)
            free = np.full(ranks, start.max() + job.transfer_ns) + rng.integers(0, 3 * US, ranks)
            reduced.append(np.stack([start, free]))
        last = np.maximum(compute[-1][1], free)
        compute.append(np.stack([last, last + 500 * US]))
        after = last + 500 * US
        for rank in range(ranks):
            rows[rank] += _rows(
                step, number, (int(now[rank]), int(data[rank]), int(after[rank])), rank, compute, reduced
            )
        number += 2 * buckets + 2
        now = after
    summaries = [
        summarise(Facts.of(trace_of(mine, distributedInfo={"rank": rank, "world_size": ranks, "backend": "nccl"})))
        for rank, mine in enumerate(rows)
    ]
    return summaries, float((now - begin).mean()) / job.n_steps


def _rows(step, number, times, rank, compute, reduced):
    """Give one rank's rows of a step: the host loads, launches all at once, in the order of the work, and waits."""
    begin, data, after = times
    out = [
        span(f"ProfilerStep#{step}", begin, after),
        span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, begin + data),
    ]
    order = [("forward", compute[0], 7)]
    for bucket, work in enumerate(compute[1:-1]):
        order += [("backward", work, 7), (NCCL, reduced[bucket], 20)]
    order.append(("optimizer", compute[-1], 7))
    for place, (name, (start, end), stream) in enumerate(order):
        at = begin + data - 30 * US + place * US
        out.append(launch(at, at + US, correlation=number + place))
        out.append(kernel(name, int(start[rank]), int(end[rank]), correlation=number + place, stream=stream))
    wait = begin + data - 30 * US + (len(order) + 1) * US
    return [*out, launch(wait, after, correlation=0, name="cudaStreamSynchronize")]
