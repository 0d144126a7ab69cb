"""Images read by two workers, started in the way that is given; reading one takes long."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 44 * 8

    def __getitem__(self, index):
        image = torch.zeros(3, 16, 16)
        total = 0
        for value in range(150_000):
            total += value  # slow
        return image + total % 7, index % 10


def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    how = sys.argv[1] if len(sys.argv) > 1 else None
    for images, labels in DataLoader(Images(), batch_size=8, num_workers=2, multiprocessing_context=how):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
