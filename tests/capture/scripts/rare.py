"""A loop that saves every eight steps, and one whose losses keep their graphs."""

import sys  # noqa: I001
import time

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(2048, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []


def keep_for_later(step):
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        str(step)


for step in range(180 if sys.argv[1] == "keeps" else 100):  # memory is read every 50 ms
    end = time.perf_counter() + 0.008
    loss = model(torch.randn(256, 2048)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    while time.perf_counter() < end:
        pass
    if sys.argv[1] == "saves" and step % 8 == 7:
        keep_for_later(step)
    if sys.argv[1] == "keeps":
        kept.append(loss)
