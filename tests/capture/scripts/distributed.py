"""DDP or FSDP2 on gloo, under torchrun; trains twice from the same seed, the second time after the capture."""

import os
import sys
import time

import torch
from torch import distributed, nn

torch.set_num_threads(1)
distributed.init_process_group("gloo")


def shared(model: nn.Module) -> nn.Module:
    if sys.argv[1] == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),)))


def train() -> str:
    torch.manual_seed(0)
    model = shared(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    torch.manual_seed(distributed.get_rank())
    for _ in range(44):
        loss = model(torch.randn(8, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item().hex()


first, second = train(), train()
if distributed.get_rank() == 0:
    print("equal" if first == second else f"{first} is not {second}")
distributed.destroy_process_group()
time.sleep(0.3)  # torch 2.13 aborts where a thread of gloo still holds a tensor when Python ends (pytorch issue 190489)
