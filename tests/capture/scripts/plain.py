"""A plain loop: DataLoader, forward, backward, optimizer."""

import sys  # noqa: I001

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
N_STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
N_WORKERS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
END = sys.argv[3] if len(sys.argv) > 3 else ""

data = TensorDataset(torch.randn(8 * N_STEPS, 16), torch.randn(8 * N_STEPS, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=N_WORKERS)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters())
for step, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 17 and END == "raise":
        raise RuntimeError("as a script may")
    if step == 17 and END == "exit":
        sys.exit(3)
    if step == 17 and END == "sigterm":
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)
    if step == 17 and END == "os_exit":
        import os

        os._exit(5)
    if step == 17 and END == "full_disk":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
print("loss", loss.item().hex(), len(sys.argv), __name__)
