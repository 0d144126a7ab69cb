"""Trains one wide and many narrow layers with DDP on gloo, CPU only, with the bucket size that is asked for.

    torchrun --standalone --nproc-per-node 2 -m workloads.buckets --bucket-mb 0.02   (DDP's own size without the flag)

With small buckets each narrow layer is an all-reduce of its own, which costs a message's latency (`comm.buckets`).
"""

from __future__ import annotations

import argparse
from typing import Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.world import joined_world

_WIDE: Final = 4096
_NARROW: Final = 64
_N_NARROW: Final = 24
_INPUTS: Final = 256


def model() -> nn.Sequential:
    """One layer with most of the bytes, and many small ones."""
    narrow = [nn.Sequential(nn.Linear(_NARROW, _NARROW), nn.ReLU()) for _ in range(_N_NARROW)]
    return nn.Sequential(nn.Linear(_INPUTS, _WIDE), nn.ReLU(), nn.Linear(_WIDE, _NARROW), *narrow)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bucket-mb", type=float, default=None)
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with joined_world("cpu", backend="gloo"):
        torch.manual_seed(0)
        parallel = DistributedDataParallel(model(), bucket_cap_mb=chosen.bucket_mb)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3)
        for _ in range(chosen.steps):
            parallel(torch.randn(_NARROW, _INPUTS)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
