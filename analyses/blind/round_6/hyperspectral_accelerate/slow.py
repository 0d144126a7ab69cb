"""Land-cover classes from hyperspectral pixels: spectral transformer over band groups, Accelerate loop."""
import argparse
import copy
import json
import os
import tempfile
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BANDS, GROUP = 192, 8


def make_scene(n, classes, seed, endmember_seed=42):
    """Linear mixing of smooth endmember spectra, illumination change and sensor noise."""
    er = np.random.default_rng(endmember_seed)
    wl = np.linspace(0, 1, BANDS)
    em = np.stack([0.3 + sum(er.uniform(-0.12, 0.12) * np.exp(-((wl - er.uniform()) / er.uniform(0.03, 0.2)) ** 2)
                             for _ in range(8)) for _ in range(classes)])
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size=n)
    mix = rng.dirichlet(np.full(classes, 0.3), size=n) * 0.45
    mix[np.arange(n), y] += 0.55
    x = (mix @ em) * rng.uniform(0.7, 1.3, size=(n, 1)) + rng.normal(0, 0.01, size=(n, BANDS))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return TensorDataset(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y))


class SpectralFormer(nn.Module):
    def __init__(self, classes, dim=160, depth=3, heads=4):
        super().__init__()
        self.embed = nn.Linear(2 * GROUP, dim)
        self.pos = nn.Parameter(torch.randn(BANDS // GROUP, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        g = x.view(len(x), -1, GROUP)
        d = torch.zeros_like(g)
        d[..., 1:] = g[..., 1:] - g[..., :-1]
        h = self.encoder(self.embed(torch.cat([g, d], -1)) + self.pos)
        return self.head(h.mean(1))


def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.detach().norm(2).item() ** 2
    return total ** 0.5


class StepLog:
    """One JSON line a step, flushed, so that a killed job loses nothing."""

    def __init__(self, path):
        self.f = open(path, "w")

    def write(self, **kw):
        self.f.write(json.dumps(kw) + "\n")
        self.f.flush()


@torch.no_grad()
def accuracy(accelerator, model, loader):
    model.eval()
    ok = n = 0
    for x, y in loader:
        pred, y = accelerator.gather_for_metrics((model(x).argmax(1), y))
        ok += (pred == y).sum().item()
        n += len(y)
    model.train()
    return ok / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--classes", type=int, default=14)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--eval-every", type=int, default=45)
    ap.add_argument("--seed", type=int, default=4)
    a = ap.parse_args()
    torch.set_num_threads(1)
    set_seed(a.seed)
    acc = Accelerator(cpu=True)
    train = DataLoader(make_scene(a.batch * 40, a.classes, 0), batch_size=a.batch, shuffle=True, drop_last=True)
    val = DataLoader(make_scene(512, a.classes, 1), batch_size=256)
    model = SpectralFormer(a.classes)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.02, fused=True)
    model, opt, train, val = acc.prepare(model, opt, train, val)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
    log = StepLog(os.path.join(tempfile.mkdtemp(), "steps.jsonl"))

    best, best_state, step, losses = 0.0, None, 0, []
    t0 = time.perf_counter()
    while step < a.steps:
        for x, y in train:
            opt.zero_grad(set_to_none=False)
            loss = loss_fn(model(x), y)
            acc.backward(loss)
            norm = grad_norm(model)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            losses.append(loss.item())
            log.write(step=step, loss=losses[-1], grad_norm=norm, lr=opt.param_groups[0]["lr"])
            acc.wait_for_everyone()
            if step % a.eval_every == 0:
                score = accuracy(acc, model, val)
                if score > best:
                    best, best_state = score, copy.deepcopy(acc.unwrap_model(model).state_dict())
                acc.print(f"step {step} loss {np.mean(losses[-a.eval_every:]):.4f} acc {score:.4f}", flush=True)
            if step == a.steps:
                break
    seconds = time.perf_counter() - t0
    acc.print(f"best {best:.4f}, {len(best_state or {})} tensors kept")
    print("loop_s=%.3f steps=%d" % (seconds, step))


if __name__ == "__main__":
    main()
