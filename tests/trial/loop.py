"""A small training loop with something for most changes to act on; its numbers are the same in every run."""

import sys  # noqa: I001
import time

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

n_steps, fetch_ms, forward_ms = (int(word) for word in sys.argv[1:4])
end = sys.argv[4] if len(sys.argv) > 4 else ""

torch.manual_seed(0)
torch.set_num_threads(1)


class Images(Dataset):
    def __len__(self):
        return 2 * n_steps

    def __getitem__(self, index):
        time.sleep(fetch_ms / 2000)
        return torch.full((3, 4, 4), index % 7 / 7), torch.tensor(index % 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.layer = nn.Linear(16, 2)

    def forward(self, x):
        time.sleep(forward_ms / 1000)
        return self.layer(torch.relu(self.convolution(x)).flatten(1))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
loader = DataLoader(Images(), batch_size=2)
for step, (x, y) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
    if end == "save" and step == 2:
        torch.save(model.state_dict(), "model.pt")
    if end == "fails" and step == 6:
        raise SystemExit(3)
    if end == "fails with workers" and loader.num_workers:
        raise ValueError("no workers here")
print("the script went on to its end")
