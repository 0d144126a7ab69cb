"""A distributed job as torch.profiler would have recorded it: one trace per rank, written as fast as a disk takes them.

Simulated: steps of a DDP job with two all-reduces each. All ranks compute the same kernels; some wait longer for their
batch, and all leave each all-reduce together when the last has come. Each rank has its own clock, its own start of each
all-reduce and its own number; the kernels between are the same text on all ranks of one kind that wait as long for
data, compressed once. Ranks of different kinds have kernels of different length, so that no two reports are alike.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

N_BUCKETS = 2
_KERNEL_US = 22
_BETWEEN_US = 1
_ORIGIN_NS = 1_790_857_026_000_000_000
_ELEMENTS = 4_000_000
_PID, _LOADER = 4321, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is simulated; `late_us`: by rank, how much longer it waits for each batch. 2,400 kernels a step: 20 MB."""

    n_ranks: int
    n_steps: int = 12
    n_kernels: int = 2_400
    data_us: int = 500
    jitter_us: int = 30
    """Within how much ranks that are not late come to an all-reduce."""
    transfer_us: int = 400
    late_us: Mapping[int, int] = field(default_factory=dict)
    max_offset_ns: int = 5_000_000
    n_kinds: int = 1
    """Ranks `n` and `n + n_kinds` have kernels of the same length; kinds differ by a microsecond at most."""

    @cached_property
    def compute_us(self) -> int:
        """Kernels before each all-reduce, with what lies between them."""
        return self.n_kernels // N_BUCKETS * (_KERNEL_US + _BETWEEN_US)

    def _body(self, rank: int) -> bytes:
        """The compressed events of a rank without its collectives."""
        key = self.late_us.get(rank, 0), rank % self.n_kinds
        if key not in self._bodies:
            late, kind = key
            kernel_us = round(_KERNEL_US - kind / self.n_kinds, 3)
            self._bodies[key] = _packed(_listed(_events(self, late, kernel_us)) + ",")
        return self._bodies[key]

    @cached_property
    def _bodies(self) -> dict[tuple[int, int], bytes]:
        """Those already made, by how late the rank is and its kind."""
        return {}

    @cached_property
    def begins_us(self) -> list[int]:
        """Start of each step, the same on all ranks; one more at the end."""
        slowest = self.data_us + max(self.late_us.values(), default=0)
        step = slowest + N_BUCKETS * (self.compute_us + self.jitter_us + self.transfer_us) + 50
        return [1_000 + number * step for number in range(self.n_steps + 1)]

    def reduced_us(self, step: int, bucket: int, late_us: int) -> tuple[int, int]:
        """From when a rank could reduce a bucket, and when all have."""
        most = max(self.late_us.values(), default=0)
        ended = self.begins_us[step] + self.data_us + most
        begun = self.begins_us[step] + self.data_us + late_us + self.compute_us
        for place in range(bucket + 1):
            begun = begun if place == 0 else ended + self.compute_us
            ended += self.compute_us + self.jitter_us + self.transfer_us
        return begun, ended

    def write(self, rank: int, path: Path) -> None:
        """Write the trace of a rank, gzipped in three members."""
        generator = np.random.default_rng(rank)
        late = self.late_us.get(rank, 0)
        head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Simulated GPU"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.n_ranks},
            "baseTimeNanoseconds": _ORIGIN_NS + int(generator.integers(-self.max_offset_ns, self.max_offset_ns + 1)),
        }
        jitter = generator.integers(0, self.jitter_us, (self.n_steps, N_BUCKETS))
        tail = _listed(_collectives(self, late, jitter)) + "]}"
        opening = json.dumps(head)[:-1] + ', "traceEvents": [\n'
        path.write_bytes(_packed(opening) + self._body(rank) + _packed(tail))


def write_all(job: Job, folder: Path) -> list[Path]:
    """Write the traces of all ranks; gives their paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{rank:05d}.json.gz" for rank in range(job.n_ranks)]
    for rank, path in enumerate(paths):
        job.write(rank, path)
    return paths


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _listed(events: Iterator[dict[str, Any]]) -> str:
    return ",\n".join(map(json.dumps, events))


def _event(cat: str, name: str, begin_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    on_device = cat == "kernel"
    pid, tid = (0, args["stream"]) if on_device else (_PID, _PID)
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin_us, "dur": dur_us, "args": args
    }  # fmt: skip


def _events(job: Job, late_us: int, kernel_us: float) -> Iterator[dict[str, Any]]:
    correlation = 1_000_000
    for step, begin in enumerate(job.begins_us[:-1]):
        yield _event("user_annotation", f"ProfilerStep#{step}", begin, job.begins_us[step + 1] - begin)
        yield _event("user_annotation", _LOADER, begin, job.data_us + late_us)
        for bucket in range(N_BUCKETS):
            ready, _ = job.reduced_us(step, bucket, late_us)
            first = ready - job.compute_us
            for number in range(job.n_kernels // N_BUCKETS):
                correlation += 1
                yield from _launched(number, first, correlation, kernel_us)


def _launched(number: int, first_us: int, correlation: int, kernel_us: float) -> Iterator[dict[str, Any]]:
    name = ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", "vectorized_elementwise_kernel")[number % 2]
    at, call = first_us + number * (_KERNEL_US + _BETWEEN_US), first_us + number * 15 - 8
    operator = ("aten::mm", "aten::add")[number % 2]
    yield _event("cpu_op", operator, call - 1.5, 9.25, **{"External id": correlation, "Record function id": 0})
    yield _event(
        "cuda_runtime", "cudaLaunchKernel", call, 5.125, **{"External id": correlation, "correlation": correlation}
    )
    shape = {"registers per thread": 128, "shared memory": 49152, "blocks per SM": 4.0, "warps per SM": 32.0}
    yield _event(
        "kernel",
        name,
        at,
        kernel_us,
        **{"External id": correlation, "device": 0, "context": 1, "stream": 7, "correlation": correlation, **shape},
        grid=[96, 4, 1],
        block=[256, 1, 1],
    )


def _collectives(job: Job, late_us: int, jitter: np.ndarray) -> Iterator[dict[str, Any]]:
    ranks = f"[0, 1, ..., {job.n_ranks - 1}]" if job.n_ranks > 30 else str(list(range(job.n_ranks)))
    for step in range(job.n_steps):
        for bucket in range(N_BUCKETS):
            ready, end = job.reduced_us(step, bucket, late_us)
            begin = ready + int(jitter[step, bucket])
            number = step * N_BUCKETS + bucket
            yield _event("cuda_runtime", "cudaLaunchKernelExC", begin - 40, 6, correlation=number + 1)
            yield _event(
                "kernel",
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
                begin,
                end - begin,
                **{
                    "device": 0, "context": 1, "stream": 20, "correlation": number + 1, "grid": [24, 1, 1],
                    "block": [544, 1, 1], "Collective name": "allreduce", "In msg nelems": _ELEMENTS,
                    "Out msg nelems": _ELEMENTS, "Group size": job.n_ranks, "dtype": "BFloat16",
                    "Process Group Name": "0", "Process Group Description": "default_pg",
                    "Process Group Ranks": ranks, "Seq": number + 17,
                },
            )  # fmt: skip


def main() -> int:
    """Write the traces of a job."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulated", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kernels", type=int, default=2_400, help="of a step: 2,400 make 20 MB of text, 240 make 2 MB")
    parser.add_argument("--kinds", type=int, default=1, help="how many lengths of kernels there are")
    parser.add_argument("--late", type=int, nargs=2, default=(3, 12_000), metavar=("RANK", "US"))
    options = parser.parse_args()
    job = Job(
        n_ranks=options.ranks,
        n_steps=options.steps,
        n_kernels=options.kernels,
        n_kinds=options.kinds,
        late_us=dict([options.late]),
    )
    write_all(job, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
