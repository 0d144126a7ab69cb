"""Robust network-intrusion detector: MLP on flow statistics, trained against an L-inf PGD attacker."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ["benign", "dos", "probe", "r2l", "u2r", "botnet"]


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--features", type=int, default=196)
    p.add_argument("--hidden", type=int, default=512)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batch", type=int, default=384)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--eps", type=float, default=0.05)
    p.add_argument("--pgd-steps", type=int, default=5)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--eval-every", type=int, default=60)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def make_flows(n, dim, seed, centers_seed=99):
    """Flow records: one cluster mixture per attack family, scaled to [0, 1]."""
    crng = np.random.default_rng(centers_seed)
    centers = crng.uniform(0.2, 0.8, size=(len(CLASSES), 3, dim))
    rng = np.random.default_rng(seed)
    y = rng.choice(len(CLASSES), size=n, p=[0.5, 0.15, 0.12, 0.08, 0.05, 0.10])
    mode = rng.integers(0, 3, size=n)
    x = centers[y, mode] + rng.normal(0, 0.25, size=(n, dim))
    return (torch.from_numpy(np.clip(x, 0, 1).astype(np.float32)),
            torch.from_numpy(y.astype(np.int64)))


class FlowNet(nn.Module):
    def __init__(self, dim, hidden, layers, n_classes):
        super().__init__()
        mods, d = [], dim
        for _ in range(layers):
            mods += [nn.Linear(d, hidden), nn.ReLU(inplace=True)]
            d = hidden
        self.body = nn.Sequential(*mods)
        self.head = nn.Linear(d, n_classes)

    def forward(self, x):
        return self.head(self.body(4 * (x - 0.5)))


class PGD:
    """Projected gradient descent in the l-infinity ball, random start."""

    def __init__(self, eps, steps, alpha=None):
        self.eps = eps
        self.steps = steps
        self.alpha = alpha or 2.5 * eps / steps

    def __call__(self, model, x, y):
        delta = torch.empty_like(x).uniform_(-self.eps, self.eps)
        for _ in range(self.steps):
            delta.requires_grad_(True)
            loss = F.cross_entropy(model(x + delta), y)
            loss.backward()
            grad = delta.grad
            with torch.no_grad():
                delta = (delta + self.alpha * grad.sign()).clamp_(-self.eps, self.eps)
                delta = (x + delta).clamp_(0, 1) - x
        return (x + delta).detach()


def evaluate(model, attack, x, y, batch=512):
    model.eval()
    clean = robust = 0
    for i in range(0, len(x), batch):
        xb, yb = x[i:i + batch], y[i:i + batch]
        adv = attack(model, xb, yb)
        with torch.no_grad():
            clean += (model(xb).argmax(1) == yb).sum().item()
            robust += (model(adv).argmax(1) == yb).sum().item()
    model.train()
    return clean / len(x), robust / len(x)


def main():
    args = get_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_x, train_y = make_flows(30000, args.features, seed=1)
    test_x, test_y = make_flows(1024, args.features, seed=2)

    model = FlowNet(args.features, args.hidden, args.layers, len(CLASSES))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.steps)
    attack = PGD(args.eps, args.pgd_steps)
    gen = torch.Generator().manual_seed(args.seed)

    running = 0.0
    perm, pos = torch.randperm(len(train_x), generator=gen), 0
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        if pos + args.batch > len(perm):
            perm, pos = torch.randperm(len(train_x), generator=gen), 0
        idx = perm[pos:pos + args.batch]
        pos += args.batch
        x, y = train_x[idx], train_y[idx]

        adv = attack(model, x, y)
        opt.zero_grad()
        loss = F.cross_entropy(model(adv), y, label_smoothing=0.05)
        loss.backward()
        opt.step()
        sched.step()
        running += loss.item()

        if step % args.eval_every == 0:
            acc, rob = evaluate(model, attack, test_x, test_y)
            opt.zero_grad()
            print(f"step {step:4d}  loss {running / args.eval_every:.4f}  clean {acc:.3f}  pgd {rob:.3f}", flush=True)
            running = 0.0
    elapsed = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (elapsed, args.steps))


if __name__ == "__main__":
    main()
