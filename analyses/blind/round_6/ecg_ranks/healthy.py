# ECG rhythm classification (12 leads), 1-D residual network, two ranks over gloo.
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

CFG = dict(
    seed=4, records=1600, leads=12, samples=1000, classes=5,
    base=32, batch=12, steps=56, lr=2e-3, weight_decay=1e-3, print_every=20,
)


def synth_records(cfg):
    g = torch.Generator().manual_seed(cfg["seed"])
    n, t = cfg["records"], torch.arange(cfg["samples"]) / 250.0
    label = torch.randint(0, cfg["classes"], (n,), generator=g)
    rate = 0.9 + 0.25 * label + 0.08 * torch.randn(n, generator=g)
    phase = (rate[:, None] * t + torch.rand(n, 1, generator=g)) % 1.0
    qrs = torch.exp(-((phase - 0.4) / 0.02) ** 2)
    p = 0.2 * torch.exp(-((phase - 0.2) / 0.04) ** 2) * (label != 3)[:, None]
    tw = 0.3 * torch.exp(-((phase - 0.7) / 0.07) ** 2)
    mix = torch.randn(n, cfg["leads"], 3, generator=g)
    x = torch.einsum("nlk,knt->nlt", mix, torch.stack([qrs, p, tw]))
    return x + 0.05 * torch.randn(x.shape, generator=g), label


class Shard:
    """This rank's half of every global permutation."""

    def __init__(self, x, y, rank, world, batch, seed):
        self.x, self.y, self.rank, self.world, self.batch = x, y, rank, world, batch
        self.g = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            perm = torch.randperm(len(self.x), generator=self.g)[self.rank::self.world]
            for i in range(0, len(perm) - self.batch + 1, self.batch):
                idx = perm[i:i + self.batch]
                yield self.x[idx], self.y[idx]


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv1d(cin, cout, 7, stride, 3, bias=False)
        self.n1 = nn.GroupNorm(8, cout)
        self.c2 = nn.Conv1d(cout, cout, 7, 1, 3, bias=False)
        self.n2 = nn.GroupNorm(8, cout)
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Conv1d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.n1(self.c1(x)))
        return F.relu(self.n2(self.c2(h)) + self.skip(x))


class ECGNet(nn.Module):
    def __init__(self, leads, base, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(leads, base, 15, 2, 7), nn.GroupNorm(8, base), nn.ReLU())
        self.stages = nn.Sequential(
            ResBlock(base, base, 1), ResBlock(base, 2 * base, 2), ResBlock(2 * base, 4 * base, 2),
            ResBlock(4 * base, 8 * base, 2),
        )
        self.fc = nn.Linear(8 * base, classes)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean(-1))


class RunWriter:
    """Scalars and distributions of a run, one JSON line each."""

    def __init__(self, folder):
        self.f = open(Path(folder) / "events.jsonl", "w")

    def scalar(self, tag, value, step):
        self.f.write(json.dumps({"tag": tag, "step": step, "value": value}) + "\n")

    def distribution(self, tag, tensor, step):
        v = tensor.detach().flatten().numpy()
        counts, edges = np.histogram(v, bins=64)
        q = np.percentile(v, [5, 25, 50, 75, 95])
        row = {"tag": tag, "step": step, "counts": counts.tolist(), "edges": edges.tolist(), "q": q.tolist()}
        self.f.write(json.dumps(row) + "\n")

    def close(self):
        self.f.close()


def train(rank, world, folder, cfg):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    torch.manual_seed(cfg["seed"])
    x, y = synth_records(cfg)
    data = iter(Shard(x, y, rank, world, cfg["batch"], cfg["seed"]))
    net = ECGNet(cfg["leads"], cfg["base"], cfg["classes"])
    ddp = DistributedDataParallel(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"], fused=True)
    writer = RunWriter(folder) if rank == 0 else None

    def one(step):
        xb, yb = next(data)
        logits = ddp(xb)
        loss = F.cross_entropy(logits, yb, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if writer is not None:
            writer.scalar("loss", loss.item(), step)
            if step % cfg["print_every"] == 0:
                for name, p in net.named_parameters():
                    writer.distribution("weight/" + name, p, step)
                    writer.distribution("grad/" + name, p.grad, step)
                hit = (logits.argmax(1) == yb).float().mean().item()
                print(f"step {step} loss {loss.item():.4f} batch accuracy {hit:.2f}", flush=True)

    one(0)
    dist.barrier()
    start = time.perf_counter()
    for step in range(1, cfg["steps"] + 1):
        one(step)
    dist.barrier()
    loop = time.perf_counter() - start
    if rank == 0:
        writer.close()
        print("loop_s=%.3f steps=%d" % (loop, cfg["steps"]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as tmp:
        torch.multiprocessing.spawn(train, args=(2, tmp, CFG), nprocs=2)
