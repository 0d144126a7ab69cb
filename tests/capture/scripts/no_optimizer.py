"""Loops without an optimizer, in which losses and transforms are modules as well."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
KIND = sys.argv[1]


class Normalize(nn.Module):
    """As torchvision's: called for each image."""

    def forward(self, image):
        return (image - 0.5) / 0.25


class Images(Dataset):
    """Sixty batches of four."""

    def __len__(self):
        return 240

    def __getitem__(self, index):
        return normalize(torch.full((3, 16, 16), index / 240))


normalize = Normalize()
total = 0.0
if KIND == "loss apart":
    lstm, criterion = nn.LSTM(16, 64, batch_first=True), nn.MSELoss()
    x, y = torch.randn(8, 20, 16), torch.randn(8, 20, 64)
    for _ in range(40):
        total += criterion(lstm(x)[0], y).item()
if KIND in ("transforms", "loader transforms"):
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.Flatten(), nn.LazyLinear(10)).eval()
    images = Images()
    batches = (torch.stack([images[4 * batch + k] for k in range(4)]) for batch in range(60))
    if KIND == "loader transforms":
        batches = DataLoader(images, batch_size=4)
    with torch.inference_mode():
        for batch in batches:
            total += net(batch).sum().item()
if KIND == "sgd by hand":
    encoder, decoder, criterion = nn.Linear(16, 64), nn.Linear(64, 16), nn.MSELoss()
    weights = [*encoder.parameters(), *decoder.parameters()]
    x = torch.randn(32, 16)
    for _ in range(40):
        loss = criterion(decoder(torch.relu(encoder(x))), x)
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                weight.sub_(0.1 * weight.grad)
                weight.grad = None
        total += loss.item()
print("loss", total.hex())
