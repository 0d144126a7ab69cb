"""A compiled model with a schedule and clipping; a running median is computed anew from all losses at each step."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def median(losses):
    ordered = sorted(losses * 4000, key=lambda value: -value)  # slow
    return ordered[len(ordered) // 2]


def train(steps=44):
    torch.manual_seed(0)
    model = torch.compile(nn.Sequential(*[Block(32) for _ in range(3)]), backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 32)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        median(losses[-20:])


train()
