"""torch.compile of the module, from outside or in place, of the optimizer's step, or of all of a step.

Prints what dynamo compiled.
"""

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
elif sys.argv[1] == "whole":

    @torch.compile(backend="aot_eager")
    def train_step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
else:
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=False)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 40):
    if sys.argv[1] == "whole":
        loss = train_step(torch.randn(8, 8))
        continue
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    step()
    optimizer.zero_grad()
print("loss", loss.item().hex(), dict(counters["stats"]), dict(counters["frames"]), dict(counters["graph_break"]))
