"""Next-item recommendation from short shopping sessions (attention over the session, STAMP-like).

Items live on (or inside) a ball: scores are scaled dot products, so item vectors are kept from growing.
"""
import dataclasses
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("session-rec")


@dataclasses.dataclass
class Config:
    n_items: int = 12_000
    n_clusters: int = 60
    dim: int = 96
    max_len: int = 24
    batch: int = 384
    negatives: int = 2048
    steps: int = 330
    eval_every: int = 110
    lr: float = 2e-3
    ball: float = 1.0
    temperature: float = 0.07
    seed: int = 13


class Sessions:
    """Sessions wander inside an interest cluster, with popular items in front; 0 is padding."""

    def __init__(self, cfg, n, seed):
        rng = np.random.default_rng(seed)
        per = cfg.n_items // cfg.n_clusters
        cluster = rng.integers(0, cfg.n_clusters, size=(n, 1))
        jump = rng.random((n, cfg.max_len + 1)) < 0.15
        cluster = np.where(jump, rng.integers(0, cfg.n_clusters, size=jump.shape), cluster)
        rank = np.minimum((per * rng.random(cluster.shape) ** 1.5).astype(np.int64), per - 1)
        items = cluster * per + rank
        items = np.where(items == 0, 1, items)
        length = rng.integers(4, cfg.max_len + 1, size=n)
        pos = np.arange(cfg.max_len)[None]
        self.history = torch.from_numpy(np.where(pos < length[:, None], items[:, :-1], 0))
        self.length = torch.from_numpy(length)
        self.target = torch.from_numpy(items[:, -1].copy())

    def __len__(self):
        return len(self.target)

    def take(self, idx):
        return self.history[idx], self.length[idx], self.target[idx]


class SessionEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.items = nn.Embedding(cfg.n_items, cfg.dim, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(cfg.max_len, cfg.dim) * 0.02)
        self.q = nn.Linear(cfg.dim, cfg.dim)
        self.k = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.m = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.score = nn.Linear(cfg.dim, 1, bias=False)
        self.mix = nn.Sequential(nn.Linear(2 * cfg.dim, 4 * cfg.dim), nn.Tanh(), nn.Linear(4 * cfg.dim, cfg.dim))
        nn.init.normal_(self.items.weight, std=0.1)

    @torch.no_grad()
    def project(self, ids):
        """Pull the rows in `ids` back into the ball, in place, all at once."""
        rows = ids.unique()
        w = self.items.weight
        vec = w[rows]
        norm = vec.norm(dim=-1, keepdim=True)
        w[rows] = vec * torch.where(norm > self.cfg.ball, self.cfg.ball / (norm + 1e-7), 1.0)

    def lookup(self, ids):
        self.project(ids)
        return self.items(ids)

    def forward(self, history, length):
        x = self.lookup(history) + self.pos
        mask = history != 0
        last = x[torch.arange(len(x)), length - 1]
        mean = (x * mask[..., None]).sum(1) / length[:, None]
        a = self.score(torch.sigmoid(self.k(x) + (self.q(last) + self.m(mean))[:, None])).squeeze(-1)
        a = a.masked_fill(~mask, -1e9).softmax(-1)
        pooled = torch.bmm(a[:, None], x).squeeze(1)
        return F.normalize(self.mix(torch.cat([pooled, last], -1)), dim=-1)

    def loss(self, history, length, target, negatives):
        s = self(history, length)
        cand = self.lookup(torch.cat([target, negatives]))
        logits = s @ cand.T / self.cfg.temperature
        ids = torch.cat([target, negatives])
        same = ids[None] == target[:, None]
        labels = torch.arange(len(target))
        same[labels, labels] = False
        return F.cross_entropy(logits.masked_fill(same, -1e9), labels)


@torch.no_grad()
def evaluate(model, data, k=20, batch=512):
    model.eval()
    table = model.items.weight
    hits, mrr = 0, 0.0
    for idx in torch.arange(len(data)).split(batch):
        history, length, target = data.take(idx)
        scores = model(history, length) @ table.T
        top = scores.topk(k, dim=-1).indices
        eq = top == target[:, None]
        hits += int(eq.any(-1).sum())
        mrr += float((eq / torch.arange(1, k + 1)).sum())
    model.train()
    return hits / len(data), mrr / len(data)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train = Sessions(cfg, 60_000, seed=1)
    valid = Sessions(cfg, 1_024, seed=2)
    model = SessionEncoder(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    log.info("%d sessions, %d items, %.2fM parameters", len(train), cfg.n_items,
             sum(p.numel() for p in model.parameters()) / 1e6)

    order = torch.randperm(len(train))
    cursor = 0
    running = 0.0
    started = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        if cursor + cfg.batch > len(order):
            order, cursor = torch.randperm(len(train)), 0
        history, length, target = train.take(order[cursor:cursor + cfg.batch])
        cursor += cfg.batch
        negatives = torch.randint(1, cfg.n_items, (cfg.negatives,))

        loss = model.loss(history, length, target, negatives)
        opt.zero_grad()
        loss.backward()
        opt.step()

        running += loss.detach()
        if step % 10 == 0:
            log.info("step %d loss %.4f", step, running / 10)
            running = 0.0
        if step % cfg.eval_every == 0:
            recall, mrr = evaluate(model, valid)
            log.info("step %d recall@20 %.4f mrr@20 %.4f", step, recall, mrr)
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - started, cfg.steps))


if __name__ == "__main__":
    main()
