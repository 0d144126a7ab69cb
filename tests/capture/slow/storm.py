"""A model whose attention bias is computed element by element in one module of many."""

import torch
from torch import nn


class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x):
        for distance in range(300):
            x = torch.add(x, self.slope, alpha=1e-4 * distance)  # slow
        return x


class Layer(nn.Module):
    def __init__(self, has_bias):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.bias = Bias() if has_bias else nn.Identity()

    def forward(self, x):
        return x + self.bias(self.down(self.up(x).relu()))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(number == 2) for number in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def run(model, n):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(n):
        loss = model(torch.randn(8, 32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


encoder = Encoder()
run(encoder, 44)
