"""Local loops of six steps, each with an optimizer of its own, and JSON text of all weights between them."""

import json  # noqa: I001

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn

torch.set_num_threads(1)


def packed(model):
    return json.dumps({name: one.tolist() for name, one in model.state_dict().items()})


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        loss = model(torch.randn(64, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
for _ in range(40):
    train(model)
    packed(model)
