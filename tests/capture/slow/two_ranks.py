"""DDP on two gloo ranks: rank 0 writes a checkpoint at each step, or rank 1 looks up its samples slowly."""

import io
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

SLOW = sys.argv[1]


def checkpoint(model):
    for _ in range(60):
        torch.save(model.state_dict(), io.BytesIO())  # slow: rank0


def lookup(n):
    found = torch.randn(n, 64)
    if SLOW == "straggler" and distributed.get_rank() == 1:
        time.sleep(0.03)  # slow: straggler
    return found


def main():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        x = lookup(64)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if SLOW == "rank0" and distributed.get_rank() == 0:
            checkpoint(model.module)
    distributed.barrier()
    distributed.destroy_process_group()
    time.sleep(0.3)  # as in distributed.py


if __name__ == "__main__":
    main()
