"""A script whose parts take known times and next to no processor: it sleeps where others work."""

import sys  # noqa: I001
import time

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

n_steps, n_workers, fetch_ms, forward_ms = (int(word) for word in sys.argv[1:5])
end = sys.argv[5] if len(sys.argv) > 5 else ""

torch.manual_seed(0)
torch.set_num_threads(1)


class Slow(Dataset):
    def __len__(self):
        return 4 * n_steps

    def __getitem__(self, index):
        time.sleep(fetch_ms / 4000)
        if end == "worker_dies" and index == 4 * (n_steps - 3):
            import os

            os._exit(9)
        return torch.full((8,), index % 7 / 7), torch.rand(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        time.sleep(forward_ms / 1000)
        return self.layer(self.drop(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Slow(), batch_size=4, num_workers=n_workers)
for step, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
    if end == "interrupt" and step == n_steps - 5:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)
    if end == "exit" and step == n_steps - 5:
        sys.exit(3)
    if end in ("raise", "leave") and step == n_steps - 5:
        import os

        if end == "leave":
            os._exit(5)
        raise RuntimeError("the job's own")
print(torch.rand(1).item().hex(), sum(one.double().sum().item() for one in model.parameters()).hex())
