"""LBFGS: forward and backward run inside the optimizer, several times to a step."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(32, 4), torch.randn(32, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=3)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(30):
    loss = optimizer.step(closure)
print("loss", loss.item().hex())
