"""A model of layers in a function, as people write it; ends early if told at which step, and how."""

import os  # noqa: I001
import signal
import sys

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn

N_STEPS = int(sys.argv[1])
LAST, END = (int(sys.argv[2]), sys.argv[3]) if len(sys.argv) > 3 else (-1, "")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        return x + self.down(hidden)


def end(how):
    if how == "raise":
        raise RuntimeError("as a script may")
    if how == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)


def train():
    torch.manual_seed(0)
    network = nn.Sequential(Layer(), Layer(), Layer())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(N_STEPS):
        loss = network(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == LAST:
            end(END)
        seen = loss.item()  # the line that waits
    return seen


print("loss", train().hex())
