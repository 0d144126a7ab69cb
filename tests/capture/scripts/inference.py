"""Inference: a DataLoader or none, a module, no optimizer."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
data = torch.randn(320, 8)
batches = DataLoader(data, batch_size=8) if sys.argv[1] == "loader" else data.split(8)
total = 0.0
with torch.inference_mode():
    for batch in batches:
        total += model(batch).sum().item()
print("loss", total.hex())
