"""A loop in a thread of its own, fed through a queue by another thread."""

import queue
import threading

import torch
from torch import nn

torch.manual_seed(0)
batches = queue.Queue(maxsize=2)
result = []


def feed():
    generator = torch.Generator().manual_seed(1)
    for _ in range(40):
        batches.put(torch.randn(8, 4, generator=generator))
    batches.put(None)


def train():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while (x := batches.get()) is not None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    result.append(loss.item().hex())


threads = [threading.Thread(target=feed), threading.Thread(target=train)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(result)
