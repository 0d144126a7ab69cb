"""A script with a profiler of its own: at steps 15 to 18, or over the whole run."""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
traces: list[object] = []


plan = schedule(wait=14, warmup=1, active=3, repeat=1) if sys.argv[1] == "window" else None
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=traces.append) as profiler:
    for _ in range(30):
        loss = model(torch.randn(8, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
print("loss", loss.item().hex(), len(traces), len(profiler.events()) > 0)
