#!/usr/bin/env python
"""Two-tower retrieval: user history tower against item tower, softmax over in-batch negatives."""
import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Cfg:
    items: int = 4000
    users: int = 20000
    history: int = 20
    attrs: int = 64
    dim: int = 64
    hidden: int = 512
    batch: int = 768
    steps: int = 160
    temperature: float = 0.07
    lr: float = 1e-3
    log_every: int = 20
    eval_every: int = 80


def simulate(cfg, seed):
    """Items live in clusters; a user reads from two of them and the target comes from one of the two."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 50, size=cfg.items)
    members = [np.flatnonzero(clusters == c) for c in range(50)]
    centres = rng.normal(size=(50, cfg.attrs))
    attrs = centres[clusters] + 0.5 * rng.normal(size=(cfg.items, cfg.attrs))
    taste = rng.integers(0, 50, size=(cfg.users, 2))
    hist = np.empty((cfg.users, cfg.history), dtype=np.int64)
    target = np.empty(cfg.users, dtype=np.int64)
    for u in range(cfg.users):
        pool = np.concatenate([members[taste[u, 0]], members[taste[u, 1]]])
        picks = rng.choice(pool, size=cfg.history + 1)
        hist[u], target[u] = picks[:-1], picks[-1]
    return (torch.from_numpy(attrs.astype(np.float32)), torch.from_numpy(hist), torch.from_numpy(target))


def mlp(n_in, hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.GELU(), nn.LayerNorm(hidden),
                         nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, n_out))


class TwoTower(nn.Module):
    def __init__(self, cfg, attrs):
        super().__init__()
        self.register_buffer("attrs", attrs)
        self.item_id = nn.Embedding(cfg.items, cfg.dim)
        nn.init.normal_(self.item_id.weight, std=0.05)
        self.item_tower = mlp(cfg.dim + cfg.attrs, cfg.hidden, cfg.dim)
        self.user_tower = mlp(cfg.dim, cfg.hidden, cfg.dim)
        self.query = nn.Linear(cfg.dim, 1)
        self.temperature = cfg.temperature

    def items(self, ids):
        return F.normalize(self.item_tower(torch.cat([self.item_id(ids), self.attrs[ids]], dim=-1)), dim=-1)

    def users(self, hist):
        e = self.item_id(hist)
        w = torch.softmax(self.query(e), dim=1)
        return F.normalize(self.user_tower((w * e).sum(1)), dim=-1)

    def forward(self, hist, target):
        logits = self.users(hist) @ self.items(target).t() / self.temperature
        same = target[:, None] == target[None, :]
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, -1e4)
        labels = torch.arange(len(target))
        loss = F.cross_entropy(logits, labels)
        return loss, (logits.argmax(1) == labels).float().mean()


@torch.inference_mode()
def recall(model, hist, target, k=100):
    model.eval()
    everything = model.items(torch.arange(model.item_id.num_embeddings))
    top = (model.users(hist) @ everything.t()).topk(k, dim=1).indices
    model.train()
    return (top == target[:, None]).any(1).float().mean().item()


class History:
    def __init__(self):
        self.rows = []

    def add(self, **kw):
        self.rows.append(kw)

    def mean(self, key, last):
        vals = [r[key] for r in self.rows[-last:]]
        return sum(vals) / len(vals)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--steps", type=int, default=Cfg.steps)
    args = ap.parse_args()
    cfg = Cfg(steps=args.steps)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    attrs, hist, target = simulate(cfg, args.seed)
    train_hist, train_target = hist[:-512], target[:-512]
    test_hist, test_target = hist[-512:], target[-512:]

    model = TwoTower(cfg, attrs)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps)
    history = History()
    gen = torch.Generator().manual_seed(args.seed)
    ckpt_dir = tempfile.mkdtemp(prefix="twotower_")

    t0 = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        pick = torch.randint(len(train_hist), (cfg.batch,), generator=gen)
        loss, acc = model(train_hist[pick], train_target[pick])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        history.add(loss=loss.detach(), acc=acc, grad_norm=grad_norm,
                    lr=sched.get_last_lr()[0])
        if step % cfg.log_every == 0:
            print(f"step {step:4d} loss {history.mean('loss', cfg.log_every):.4f} "
                  f"in-batch acc {history.mean('acc', cfg.log_every):.3f} "
                  f"grad {history.mean('grad_norm', cfg.log_every):.2f}", flush=True)
        if step % cfg.eval_every == 0:
            print(f"  recall@100 {recall(model, test_hist, test_target):.3f}")
    loop_s = time.perf_counter() - t0
    torch.save({"model": model.state_dict(), "step": step}, os.path.join(ckpt_dir, "last.pt"))
    print("loop_s=%.3f steps=%d" % (loop_s, cfg.steps))


if __name__ == "__main__":
    main()
