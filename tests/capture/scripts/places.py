"""A training loop with one slow place: in Python, in the dataset, or in one module of the model."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

SLOW = sys.argv[1]


class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if SLOW == "dataset":
            decode(index)
        return torch.randn(64)


def decode(index):
    total = 0
    for i in range(20_000):
        total += i
    return total


class Chatty(torch.nn.Module):
    def forward(self, x):
        shift = 0 * x.detach()  # outside the graph: else backward() would be a second slow line
        for _ in range(600 if SLOW == "module" else 1):
            shift = shift + 0.001
        return x + shift


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(3)])
        self.chatty = Chatty()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.chatty(x)


def report(loss):
    total = 0.0
    for i in range(400_000):
        total += i
    return total


def train(net, loader, optimizer):
    for number, batch in enumerate(loader):
        if number == 26:
            break
        optimizer.zero_grad()
        loss = net(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        if SLOW == "python":
            report(loss)
        if SLOW == "reading":
            for _ in range(3000):
                loss.item()


def main():
    torch.manual_seed(0)
    net = Net()
    train(net, DataLoader(Data(), batch_size=16), torch.optim.SGD(net.parameters(), lr=0.1))


main()
