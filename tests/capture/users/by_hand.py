"""Plain SGD by hand, without torch.optim and without modules: functional calls and autograd.grad."""

import torch

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(256, 1)
w = torch.zeros(8, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(60):
    loss = ((x @ w + b - y) ** 2).mean()
    gw, gb = torch.autograd.grad(loss, (w, b))
    with torch.no_grad():
        w -= 0.05 * gw
        b -= 0.05 * gb
print(loss.item().hex())
