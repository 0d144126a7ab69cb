"""DDP by torch.multiprocessing.spawn, as in the tutorial: no torchrun, the ranks are children of the script."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(44):
        optimizer.zero_grad()
        loss = model(torch.full((4, 16), 0.01 * (rank + step))).square().mean()
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print(loss.item().hex(), flush=True)
    dist.destroy_process_group()
    time.sleep(0.3)  # else one run in eight aborts: pytorch issue 190489


if __name__ == "__main__":
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = str(free.getsockname()[1])
    mp.spawn(worker, args=(2, number), nprocs=2)
    sys.exit(0)
