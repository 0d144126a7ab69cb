"""One inner optimizer, called once for each group of parameters, as ZeRO does."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
inner = torch.optim.AdamW([{"params": [parameter]} for parameter in model.parameters()])
groups = inner.param_groups
for _ in range(30):
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    for group in groups:
        inner.param_groups = [group]
        inner.step()
    inner.param_groups = groups
    inner.zero_grad()
print("loss", loss.item().hex())
