"""A compiled model fed by workers that stay between epochs; clipping, a schedule by step, a checkpoint by epoch."""

import io

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), index % 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.features(x))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net()
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=80)
    loader = DataLoader(Images(), batch_size=8, num_workers=2, persistent_workers=True, shuffle=True, drop_last=True)
    for _ in range(2):
        for image, label in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(image), label)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        torch.save(net.state_dict(), io.BytesIO())
    print(loss.item().hex())
