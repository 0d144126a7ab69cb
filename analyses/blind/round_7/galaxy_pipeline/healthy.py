"""Galaxy morphology (vote fractions), a residual ConvNet as a pipeline over two processes.

The network is a list of blocks.  Stage 0 holds the first ones, stage 1 the others and the loss.
A batch is cut in micro-batches: stage 0 sends all activations on, then takes the gradients back in order.
"""
import datetime
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

SIZE, ANSWERS = 64, 10


class Settings:
    batch = 32
    micro = 8
    steps = 40
    pool = 24
    lr = 2e-3
    seed = 99
    report = 10


class GalaxyMaker:
    """Inclined exponential discs with or without arms, bar, bulge; both stages draw the same stream."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, SIZE)
        self.yy, self.xx = torch.meshgrid(ax, ax, indexing="ij")
        self.mix = torch.randn(6, ANSWERS, generator=torch.Generator().manual_seed(1))

    def batch(self, n):
        p = torch.rand(n, 6, generator=self.g)
        incl, angle, arms, bar, bulge, scale = (c.view(n, 1, 1) for c in p.unbind(1))
        ca, sa = torch.cos(6.28 * angle), torch.sin(6.28 * angle)
        u = self.xx * ca + self.yy * sa
        v = (self.yy * ca - self.xx * sa) / (0.3 + 0.7 * incl)
        r = (u * u + v * v).sqrt() + 1e-3
        disc = torch.exp(-r / (0.15 + 0.25 * scale))
        disc = disc * (1 + arms * torch.cos(2 * torch.atan2(v, u) - 6 * torch.log(r)))
        img = disc + bulge * torch.exp(-(r / 0.1) ** 2) + bar * torch.exp(-(u / 0.3) ** 2 - (v / 0.06) ** 2)
        img = img.unsqueeze(1) * torch.tensor([0.8, 1.0, 1.2]).view(1, 3, 1, 1)
        img = img + 0.05 * torch.randn(img.shape, generator=self.g)
        return img, ((p - 0.5) @ self.mix * 2).softmax(1)


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.GroupNorm(4, cout), nn.ReLU(),
                                  nn.Conv2d(cout, cout, 3, 1, 1), nn.GroupNorm(4, cout))
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class Head(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Linear(c, ANSWERS)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))


def make_blocks():
    return [
        Block(3, 16), Block(16, 16), Block(16, 16), Block(16, 16),
        Block(16, 24, 2), Block(24, 24),
        Block(24, 32, 2), Head(32),
    ]


def split(blocks):
    cut = 3  # both stages take about the same time
    return blocks[:cut], blocks[cut:]


class FirstStage:
    def __init__(self, net, s):
        self.net, self.s = net, s

    def step(self, images, targets):
        outs, sends = [], []
        for part in images.chunk(self.s.micro):
            out = self.net(part)
            outs.append(out)
            sends.append((dist.isend(out.detach(), 1), out))
        for out in outs:
            grad = torch.empty_like(out)
            dist.recv(grad, 1)
            out.backward(grad)
        for work, _ in sends:
            work.wait()


class LastStage:
    def __init__(self, net, s, shape):
        self.net, self.s, self.shape = net, s, shape

    def step(self, images, targets):
        total, sends = 0.0, []
        for want in targets.chunk(self.s.micro):
            x = torch.empty((len(want),) + self.shape)
            dist.recv(x, 0)
            x.requires_grad_()
            out = self.net(x)
            loss = F.kl_div(out.log_softmax(1), want, reduction="batchmean") / self.s.micro
            loss.backward()
            sends.append((dist.isend(x.grad, 0), x))
            total += loss.item()
        for work, _ in sends:
            work.wait()
        return total


def stage_main(rank, s, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    torch.manual_seed(s.seed)
    parts = split(make_blocks())
    first, second = nn.Sequential(*parts[0]), nn.Sequential(*parts[1])
    maker = GalaxyMaker(s.seed)
    if rank == 0:
        stage = FirstStage(first, s)
    else:
        with torch.no_grad():
            shape = tuple(first(torch.zeros(1, 3, SIZE, SIZE)).shape[1:])
        stage = LastStage(second, s, shape)
    opt = torch.optim.AdamW(stage.net.parameters(), lr=s.lr, fused=True)

    pool = [maker.batch(s.batch) for _ in range(s.pool)]

    def one(i):
        images, targets = pool[i % s.pool]
        opt.zero_grad()
        loss = stage.step(images, targets)
        opt.step()
        return loss

    one(0)
    dist.barrier()
    t0 = time.perf_counter()
    for i in range(1, s.steps + 1):
        loss = one(i)
        if rank == 1 and i % s.report == 0:
            print(f"step {i:3d} kl {loss:.4f}", file=sys.stderr, flush=True)
    dist.barrier()
    wall = time.perf_counter() - t0
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (wall, s.steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(stage_main, args=(Settings(), port), nprocs=2)
