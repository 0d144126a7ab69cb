"""An image classifier: epochs of train and test loaders, a scheduler, metrics by .item(), as in the official examples."""

import argparse

import torch
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x, self.y = torch.randn(n, 1, 12, 12, generator=g), torch.randint(10, (n,), generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for index, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if index % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{index * len(data)}/{len(loader.dataset)}]\tLoss: {loss.item():.6f}")


def test(model, device, loader):
    model.eval()
    total = correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            total += nn.functional.nll_loss(output, target.to(device), reduction="sum").item()
            correct += output.argmax(1).eq(target).sum().item()
    print(f"Test set: Average loss: {total / len(loader.dataset):.6f}, Accuracy: {correct}/{len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--log-interval", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 10), nn.LogSoftmax(1)
    )
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    train_loader = DataLoader(Images(96), batch_size=8, shuffle=True)
    test_loader = DataLoader(Images(32), batch_size=16)
    for epoch in range(1, args.epochs + 1):
        train(args, model, "cpu", train_loader, optimizer, epoch)
        test(model, "cpu", test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
