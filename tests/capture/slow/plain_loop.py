"""A loop at the top of a script, as in a first notebook."""

import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_function = nn.MSELoss()

for step in range(44):
    inputs, targets = torch.randn(64, 32), torch.randn(64, 1)
    optimizer.zero_grad()
    loss = loss_function(model(inputs), targets)
    loss.backward()
    optimizer.step()
    time.sleep(0.03)  # slow
