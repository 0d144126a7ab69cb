"""Gradient accumulation: four batches to a step, DataLoader first in each."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(480, 8), torch.randn(480, 1)), batch_size=4)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for index, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y) / 4
    loss.backward()
    if index % 4 == 3:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
print("loss", loss.item().hex())
