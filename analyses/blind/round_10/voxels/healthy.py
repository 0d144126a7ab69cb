"""Voxel completion: a 3-D convolutional encoder-decoder repairs scans with a block cut out."""
import itertools
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Conf:
    side: int = 24
    objects: int = 960
    test_objects: int = 64
    batch: int = 16
    epochs: int = 2
    width: int = 20
    lr: float = 2e-3
    report: int = 20
    seed: int = 13


def balls_and_boxes(n, side, gen):
    line = torch.linspace(-1, 1, side)
    xyz = torch.stack(torch.meshgrid(line, line, line, indexing="ij"), -1)
    centre = (torch.rand(n, 2, 3, generator=gen) - 0.5) * 0.9
    size = 0.25 + 0.35 * torch.rand(n, 2, 3, generator=gen)
    grids = []
    for (c0, c1), (s0, s1) in zip(centre, size):
        ball = (((xyz - c0) / s0) ** 2).sum(-1) < 1
        grids.append(ball | ((xyz - c1).abs() < s1).all(-1))
    return torch.stack(grids)


class Augment:
    """Quarter turns, mirrors and a cut-out block for a whole batch by index arithmetic."""

    def __init__(self, side, gen):
        self.side, self.gen = side, gen
        turns = []
        for perm in itertools.permutations(range(3)):
            for sign in itertools.product((1, -1), repeat=3):
                m = torch.zeros(3, 3, dtype=torch.long)
                for row, (col, s) in enumerate(zip(perm, sign)):
                    m[row, col] = s
                turns.append(m)
        axis = torch.arange(side)
        self.cells = torch.cartesian_prod(axis, axis, axis)
        centred = (2 * self.cells - (side - 1)).float()
        source = ((torch.stack(turns).float() @ centred.t()).long() + side - 1) // 2
        stride = torch.tensor([side * side, side, 1])
        self.source = (source * stride[:, None]).sum(1)          # (48, side^3)

    def __call__(self, grids):
        n, side = len(grids), self.side
        turn = torch.randint(len(self.source), (n,), generator=self.gen)
        whole = grids.flatten(1).gather(1, self.source[turn])
        edge = torch.randint(8, 13, (n, 1), generator=self.gen)
        low = 4 + (torch.rand(n, 3, generator=self.gen) * (side - edge - 7)).long()
        axis = torch.arange(side)
        hit = (axis >= low[..., None]) & (axis < (low + edge)[..., None])
        hole = hit[:, 0, :, None, None] & hit[:, 1, None, :, None] & hit[:, 2, None, None, :]
        whole = whole.view(n, side, side, side)
        return (whole & ~hole)[:, None].float(), whole[:, None].float()


def conv_block(c_in, c_out, stride=1):
    return nn.Sequential(nn.Conv3d(c_in, c_out, 3, stride, 1, bias=False),
                         nn.GroupNorm(4, c_out), nn.ReLU())


class UNet3d(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.enc1 = conv_block(1, w, 2)
        self.enc2 = conv_block(w, 2 * w, 2)
        self.bottom = nn.Sequential(conv_block(2 * w, 4 * w, 2), conv_block(4 * w, 4 * w),
                                    nn.ConvTranspose3d(4 * w, 2 * w, 2, 2))
        self.dec2 = nn.Sequential(conv_block(4 * w, 2 * w), nn.ConvTranspose3d(2 * w, w, 2, 2))
        self.dec1 = nn.Sequential(conv_block(2 * w, w), nn.ConvTranspose3d(w, 1, 2, 2))

    def forward(self, x):
        fine = self.enc1(x)
        coarse = self.enc2(fine)
        h = self.dec2(torch.cat([self.bottom(coarse), coarse], 1))
        return self.dec1(torch.cat([h, fine], 1))


def mean_iou(logits, whole):
    p, t = logits > 0, whole > 0.5
    both, any_ = (p & t).flatten(1).sum(1), (p | t).flatten(1).sum(1)
    return (both / any_.clamp_min(1)).mean().item()


def main(c):
    torch.manual_seed(c.seed)
    gen = torch.Generator().manual_seed(c.seed)
    train = balls_and_boxes(c.objects, c.side, gen)
    augment = Augment(c.side, gen)
    test_in, test_out = augment(balls_and_boxes(c.test_objects, c.side, gen))
    net = UNet3d(c.width)
    adam = torch.optim.Adam(net.parameters(), lr=c.lr)
    weight = torch.tensor(2.0)

    begin = time.perf_counter()
    losses, step = [], 0
    for epoch in range(c.epochs):
        for rows in torch.randperm(len(train)).split(c.batch):
            scan, whole = augment(train[rows])
            loss = F.binary_cross_entropy_with_logits(net(scan), whole, pos_weight=weight)
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            step += 1
            if step % c.report == 0:
                print(f"{step:4d}: loss {sum(losses) / len(losses):.4f}")
                losses.clear()
        net.eval()
        with torch.no_grad():
            score = mean_iou(net(test_in), test_out)
        net.train()
        print(f"epoch {epoch}: iou {score:.4f}")
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={step}")


if __name__ == "__main__":
    main(Conf())
