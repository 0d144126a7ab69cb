"""Face identification with a class-sharded margin softmax on two CPU ranks.

The backbone is replicated (gradients averaged), the classifier has too many identities for one host,
so each rank owns half of its rows.
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class FaceFactory:
    """Identity = low-rank pattern, photo = pattern under noise and brightness changes."""

    def __init__(self, n_ids, size, batch, rank, seed=5):
        g = torch.Generator().manual_seed(seed)
        self.basis = torch.randn(24, 3 * size * size, generator=g) * 0.2
        self.codes = torch.randn(n_ids, 24, generator=g)
        self.gen = torch.Generator().manual_seed(seed + 100 + rank)
        self.size, self.batch, self.n_ids = size, batch, n_ids

    def __call__(self):
        y = torch.randint(0, self.n_ids, (self.batch,), generator=self.gen)
        x = self.codes[y] @ self.basis
        x += 0.3 * torch.randn(x.shape, generator=self.gen)
        x *= 0.8 + 0.4 * torch.rand(self.batch, 1, generator=self.gen)
        return x.view(self.batch, 3, self.size, self.size), y


class Backbone(nn.Module):
    def __init__(self, dim, width=24):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.PReLU(o),
                nn.Conv2d(o, o, 3, padding=1, groups=o, bias=False), nn.Conv2d(o, o, 1, bias=False),
                nn.BatchNorm2d(o), nn.PReLU(o))

        self.body = nn.Sequential(stage(3, width), stage(width, 2 * width), stage(2 * width, 4 * width))
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(4 * width * 16, dim, bias=False), nn.BatchNorm1d(dim))

    def forward(self, x):
        return F.normalize(self.embed(self.body(x)), dim=-1)


class ShardedMarginSoftmax(torch.autograd.Function):
    """Cross-entropy over identities that are spread over the ranks.

    `feats` (N, D) holds the features of all ranks, `weight` (C / world, D) the local rows, already normalised.
    Returns the mean loss; the gradient for `feats` is that of the whole classifier.
    """

    @staticmethod
    def forward(ctx, feats, weight, target, scale, margin):
        rank, world = dist.get_rank(), dist.get_world_size()
        shard = weight.shape[0]
        local = target - rank * shard
        mine = ((local >= 0) & (local < shard)).nonzero().squeeze(1)
        logits = feats @ weight.T
        logits[mine, local[mine]] -= margin
        logits *= scale

        parts = [torch.empty_like(logits) for _ in range(world)]
        dist.all_gather(parts, logits)
        logp = F.log_softmax(torch.cat(parts, dim=1), dim=1)
        loss = F.nll_loss(logp, target)
        probs = logp[:, rank * shard:(rank + 1) * shard].exp()

        probs[mine, local[mine]] -= 1.0
        ctx.save_for_backward(feats, weight, probs)
        ctx.scale = scale
        return loss

    @staticmethod
    def backward(ctx, grad):
        feats, weight, dlogits = ctx.saved_tensors
        dlogits = dlogits * (grad * ctx.scale / feats.shape[0])
        dfeats = dlogits @ weight
        dist.all_reduce(dfeats)
        return dfeats, dlogits.T @ feats, None, None, None


class GatherFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        ctx.n = x.shape[0]
        return torch.cat(out)

    @staticmethod
    def backward(ctx, grad):
        r = dist.get_rank()
        return grad[r * ctx.n:(r + 1) * ctx.n]


def gather_ids(y):
    out = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(out, y)
    return torch.cat(out)


def sum_gradients(params):
    """Each rank holds the part of the gradient that came through its own photos."""
    flat = torch.cat([p.grad.reshape(-1) for p in params])
    dist.all_reduce(flat)
    at = 0
    for p in params:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    net = Backbone(args.dim)
    centres = nn.Parameter(torch.randn(args.ids // world, args.dim,
                                       generator=torch.Generator().manual_seed(rank)) * 0.05)
    params = list(net.parameters())
    opt = torch.optim.SGD([{"params": params}, {"params": [centres]}], lr=args.lr, momentum=0.9, fused=True)
    photos = FaceFactory(args.ids, 32, args.batch, rank)

    seen = 0
    dist.barrier()
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = photos()
        feats = GatherFeatures.apply(net(x))
        target = gather_ids(y)
        loss = ShardedMarginSoftmax.apply(feats, F.normalize(centres, dim=1), target, args.scale, args.margin)
        opt.zero_grad()
        loss.backward()
        sum_gradients(params)
        opt.step()
        seen += len(target)
        if rank == 0 and step % args.log_every == 0:
            print(f"step {step:4d} loss {loss.item():7.4f} faces {seen}", flush=True)
    dist.barrier()
    took = time.perf_counter() - t0
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (took, args.steps), flush=True)
    dist.destroy_process_group()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--ids", type=int, default=32_000)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--batch", type=int, default=96, help="photos per rank")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--scale", type=float, default=24.0)
    p.add_argument("--margin", type=float, default=0.2)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--log-every", type=int, default=10)
    return p.parse_args()


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port(), parse()), nprocs=2, join=True)
