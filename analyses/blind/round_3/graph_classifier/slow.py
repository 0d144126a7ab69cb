"""Graph classification by message passing; pooling and aggregation with index_add."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

logger = logging.getLogger(__name__)


class RandomGraphs:
    """Communities of 2, 3, 4 or 5 blocks; the class is the number of blocks."""

    def __init__(self, count, n_feat, seed):
        rng = np.random.default_rng(seed)
        self.graphs = []
        for _ in range(count):
            label = int(rng.integers(0, 4))
            n = int(rng.integers(40, 80))
            block = rng.integers(0, label + 2, size=n)
            same = block[:, None] == block[None, :]
            adj = rng.random((n, n)) < np.where(same, 0.45, 0.05)
            adj = np.triu(adj, 1)
            s, d = np.nonzero(adj | adj.T)
            x = rng.normal(size=(n, n_feat)).astype(np.float32)
            x[:, 0] = block == 0
            deg = np.bincount(d, minlength=n).astype(np.float32)
            norm = 1.0 / np.sqrt(np.maximum(deg[s], 1) * np.maximum(deg[d], 1))
            self.graphs.append((torch.from_numpy(x), torch.from_numpy(s), torch.from_numpy(d),
                                torch.from_numpy(norm.astype(np.float32)), label))

    def __len__(self):
        return len(self.graphs)

    def batch(self, idx):
        xs, srcs, dsts, norms, labels, owner, base = [], [], [], [], [], [], 0
        for k, i in enumerate(idx):
            x, s, d, w, y = self.graphs[i]
            xs.append(x)
            srcs.append(s + base)
            dsts.append(d + base)
            norms.append(w)
            labels.append(y)
            owner.append(torch.full((len(x),), k))
            base += len(x)
        return {"x": torch.cat(xs), "src": torch.cat(srcs), "dst": torch.cat(dsts), "norm": torch.cat(norms),
                "owner": torch.cat(owner), "y": torch.tensor(labels), "count": len(idx)}


class Conv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width, bias=False)
        self.update = nn.Linear(2 * width, width)
        self.ln = nn.LayerNorm(width)

    def forward(self, h, src, dst, norm):
        m = self.message(h.index_select(0, src)) * norm[:, None]
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return self.ln(h + F.silu(self.update(torch.cat([h, agg], dim=-1))))


class GraphNet(nn.Module):
    def __init__(self, n_feat, width, depth, n_classes):
        super().__init__()
        self.embed = nn.Linear(n_feat, width)
        self.convs = nn.ModuleList([Conv(width) for _ in range(depth)])
        self.out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, n_classes))

    def forward(self, b):
        h = self.embed(b["x"])
        for conv in self.convs:
            h = conv(h, b["src"], b["dst"], b["norm"])
        pooled = h.new_zeros(b["count"], h.shape[1]).index_add(0, b["owner"], h)
        sizes = torch.bincount(b["owner"], minlength=b["count"]).unsqueeze(1)
        return self.out(pooled / sizes)


@torch.no_grad()
def accuracy(model, data, batch_size):
    model.eval()
    hits = 0
    for i in range(0, len(data), batch_size):
        b = data.batch(range(i, min(i + batch_size, len(data))))
        hits += int((model(b).argmax(1) == b["y"]).sum())
    model.train()
    return hits / len(data)


def parse():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--graphs", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--width", type=int, default=128)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    return ap.parse_args()


def run(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    train, test = RandomGraphs(cfg.graphs, 16, cfg.seed), RandomGraphs(40, 16, cfg.seed + 1)
    model = GraphNet(16, cfg.width, cfg.depth, 4)
    logger.info("%d parameters", sum(p.numel() for p in model.parameters()))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    steps, t0 = 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(train)).tolist()
        running = 0.0
        for i in range(0, len(order), cfg.batch_size):
            b = train.batch(order[i:i + cfg.batch_size])
            loss = F.cross_entropy(model(b), b["y"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item() * b["count"]
            steps += 1
        logger.info("epoch %d  loss %.4f  test acc %.3f", epoch, running / len(train),
                    accuracy(model, test, cfg.batch_size))
    return time.perf_counter() - t0, steps


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    print("loop_s=%.3f steps=%d" % run(parse()))
