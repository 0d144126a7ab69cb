"""Forty batches are gone through before the training: a validation, or the mean and spread of the data."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
BEFORE = sys.argv[1]
N_STEPS = int(sys.argv[2])

data = TensorDataset(torch.randn(8 * 40, 16), torch.randn(8 * 40, 1))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
criterion = nn.MSELoss()
total = 0.0
if BEFORE == "statistics":
    for x, _ in DataLoader(data, batch_size=8):
        total += x.mean().item()
if BEFORE == "forward":
    with torch.no_grad():
        for _ in range(40):
            total += model(data.tensors[0][:8]).sum().item()

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if BEFORE == "validation":
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=8):
            total += criterion(model(x), y).item()

model.train()
done = 0
loss = torch.zeros(())
while done < N_STEPS:
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        if done == N_STEPS:
            break
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
print("loss", loss.item().hex(), total.hex())
