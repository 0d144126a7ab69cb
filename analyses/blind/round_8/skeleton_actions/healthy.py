"""Action recognition from 2-D skeletons with graph convolutions; two gloo ranks with DistributedDataParallel."""
import argparse
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PARENTS = [-1, 0, 1, 2, 1, 4, 5, 1, 7, 8, 0, 10, 11, 0, 13, 14, 2, 2]
JOINTS = len(PARENTS)
CLASSES = 12


def adjacency():
    a = np.eye(JOINTS, dtype=np.float32)
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            a[child, parent] = a[parent, child] = 1
    return torch.from_numpy(a / a.sum(1, keepdims=True))


def make_clips(n, frames, seed):
    """Each class is a set of joint frequencies; clips differ in phase, size and noise."""
    proto = np.random.default_rng(77)
    freq = proto.uniform(0.5, 3, (CLASSES, JOINTS, 2))
    amp = proto.gamma(1.5, 0.2, (CLASSES, JOINTS, 2))
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    t = np.linspace(0, 2 * np.pi, frames)[None, :, None, None]
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1, 1))
    x = amp[y][:, None] * np.sin(freq[y][:, None] * t + phase) * rng.uniform(0.7, 1.3, (n, 1, 1, 1))
    x += rng.normal(0, 0.25, x.shape)
    return torch.from_numpy(x.transpose(0, 3, 1, 2).astype(np.float32).copy()), torch.from_numpy(y)


class PoseCodebook(nn.Module):
    """Fixed random projection of quantised poses: a frozen table of pose vectors, looked up by a hash of the joints."""

    def __init__(self, entries, dim, seed=9):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        self.register_buffer("table", torch.randn(entries, dim, generator=gen) / dim ** 0.5)
        self.register_buffer("planes", torch.randn(2 * JOINTS, 16, generator=gen))
        self.register_buffer("powers", 2 ** torch.arange(16))

    def forward(self, x):
        flat = x.permute(0, 2, 1, 3).flatten(2)
        code = ((flat @ self.planes > 0).long() * self.powers).sum(-1) % len(self.table)
        return self.table[code]


class GraphBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.spatial = nn.Conv2d(cin, cout, 1)
        self.edge = nn.Parameter(torch.zeros(JOINTS, JOINTS))
        self.temporal = nn.Conv2d(cout, cout, (7, 1), stride=(stride, 1), padding=(3, 0), groups=4)
        self.norm = nn.GroupNorm(8, cout)
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Conv2d(cin, cout, 1, stride=(stride, 1))

    def forward(self, x, adj):
        y = torch.einsum("nctv,vw->nctw", self.spatial(x), adj + self.edge)
        return F.relu(self.norm(self.temporal(F.relu(y))) + self.skip(x))


class ActionNet(nn.Module):
    def __init__(self, entries, width=32):
        super().__init__()
        self.register_buffer("adj", adjacency())
        self.codebook = PoseCodebook(entries, 64)
        self.blocks = nn.ModuleList([GraphBlock(2, width), GraphBlock(width, width), GraphBlock(width, 2 * width, 2),
                                     GraphBlock(2 * width, 2 * width, 2)])
        self.pose = nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(2 * width + 64, CLASSES)

    def forward(self, x):
        codes, _ = self.pose(self.codebook(x[:, :, ::4]))
        for block in self.blocks:
            x = block(x, self.adj)
        return self.head(torch.cat([x.mean((2, 3)), codes[:, -1]], 1))


def evaluate(model, x, y, rank, world):
    model.eval()
    right = torch.zeros(())
    with torch.no_grad():
        for a, b in zip(x[rank::world].split(64), y[rank::world].split(64)):
            right += (model(a).argmax(1) == b).sum()
    model.train()
    dist.all_reduce(right)
    return right.item() / len(y)


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    x, y = make_clips(1600, args.frames, args.seed)
    vx, vy = make_clips(256, args.frames, args.seed + 1)
    net = ActionNet(args.entries)
    model = DDP(net, broadcast_buffers=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    gen = torch.Generator().manual_seed(args.seed)

    def one_step():
        idx = torch.randint(len(x), (world, args.batch), generator=gen)[rank]
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(2):
        one_step()
    dist.barrier()
    t0, total = time.perf_counter(), torch.zeros(())
    for step in range(1, args.steps + 1):
        total += one_step()
        if step % args.eval_every == 0:
            acc = evaluate(net, vx, vy, rank, world)
            if rank == 0:
                print("step %d loss %.4f accuracy %.3f" % (step, total.item() / args.eval_every, acc))
            total.zero_()
    dist.barrier()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, args.steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=48)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--entries", type=int, default=65536)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--eval-every", type=int, default=60)
    p.add_argument("--seed", type=int, default=8)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, args), nprocs=2)
