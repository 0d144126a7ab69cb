"""torch.compile of the module, from outside or in place, or of the optimizer's step; prints what dynamo compiled."""

import sys

import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(self.first(x).tanh())


model = Model()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
step = optimizer.step
if sys.argv[1] == "module":
    model = torch.compile(model, backend="aot_eager", fullgraph=True)
elif sys.argv[1] == "in place":
    model.compile(backend="aot_eager", fullgraph=True)
else:
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=False)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 40):
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    step()
    optimizer.zero_grad()
print("loss", loss.item().hex(), dict(counters["stats"]), dict(counters["frames"]), dict(counters["graph_break"]))
