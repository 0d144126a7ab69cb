"""Multi-task face-like images: identity group, pose angles and attributes from one trunk.

Every part has its own optimizer. The task weights follow the norm of each task's gradient at the
last shared layer, so that no task drowns the others (after Chen et al., GradNorm, without its learnt part).
"""
import argparse
import collections
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--bs", type=int, default=32)
    p.add_argument("--res", type=int, default=48)
    p.add_argument("--balance-every", type=int, default=4)
    p.add_argument("--beta", type=float, default=0.9)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1 = nn.Conv2d(c, c, 3, padding=1)
        self.n1 = nn.GroupNorm(8, c)
        self.c2 = nn.Conv2d(c, c, 3, padding=1)
        self.n2 = nn.GroupNorm(8, c)

    def forward(self, x):
        h = F.relu(self.n1(self.c1(x)))
        return F.relu(x + self.n2(self.c2(h)))


class Trunk(nn.Module):
    def __init__(self, width=32, out=128):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.block1 = Residual(width)
        self.down = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.block2 = Residual(2 * width)
        self.shared = nn.Linear(2 * width, out)

    def forward(self, x):
        x = self.block1(F.relu(self.stem(x)))
        x = self.block2(F.relu(self.down(x)))
        return F.relu(self.shared(x.mean((2, 3))))


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, o))


class Faces(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.heads = nn.ModuleDict({"group": mlp(128, 12), "pose": mlp(128, 3), "attr": mlp(128, 10)})

    def forward(self, x):
        f = self.trunk(x)
        return {k: h(f) for k, h in self.heads.items()}


LOSSES = {
    "group": F.cross_entropy,
    "pose": F.smooth_l1_loss,
    "attr": F.binary_cross_entropy_with_logits,
}


class Factory:
    """Images that are made from a latent code; the targets are functions of the same code."""

    def __init__(self, n, res, seed):
        g = torch.Generator().manual_seed(seed)
        z = torch.randn(n, 16, generator=g)
        basis = torch.randn(16, 3 * 12 * 12, generator=g) / 4
        small = torch.tanh(z @ basis).view(n, 3, 12, 12)
        self.x = F.interpolate(small, size=(res, res), mode="bilinear", align_corners=False)
        self.x += 0.1 * torch.randn(self.x.shape, generator=g)
        self.t = {
            "group": (z @ torch.randn(16, 12, generator=g)).argmax(1),
            "pose": torch.sin(z @ torch.randn(16, 3, generator=g) / 3),
            "attr": ((z @ torch.randn(16, 10, generator=g)) > 0).float(),
        }

    def batch(self, n, g):
        i = torch.randint(len(self.x), (n,), generator=g)
        return self.x[i], {k: v[i] for k, v in self.t.items()}


class Balancer:
    def __init__(self, tasks, trunk, beta):
        self.w = {t: 1.0 for t in tasks}
        self.ema = {}
        self.trunk = trunk
        self.beta = beta

    def update(self, losses):
        weight = self.trunk.shared.weight
        for task, loss in losses.items():
            grad, = torch.autograd.grad(loss, weight, retain_graph=True)
            norm = grad.norm().item()
            self.ema[task] = self.beta * self.ema.get(task, norm) + (1 - self.beta) * norm
        inv = {t: 1.0 / (n + 1e-8) for t, n in self.ema.items()}
        total = sum(inv.values())
        self.w = {t: len(inv) * v / total for t, v in inv.items()}

    def __call__(self, losses):
        return sum(self.w[t] * l for t, l in losses.items())


@torch.no_grad()
def evaluate(net, data, n=192):
    net.eval()
    out = net(data.x[:n])
    net.train()
    return {
        "group": (out["group"].argmax(1) == data.t["group"][:n]).float().mean().item(),
        "pose": (out["pose"] - data.t["pose"][:n]).abs().mean().item(),
        "attr": ((out["attr"] > 0).float() == data.t["attr"][:n]).float().mean().item(),
    }


def main():
    a = parse()
    torch.manual_seed(a.seed)
    train, test = Factory(3000, a.res, 1), Factory(256, a.res, 2)
    net = Faces()
    opts = {"trunk": torch.optim.AdamW(net.trunk.parameters(), 1e-3, weight_decay=1e-2, fused=True)}
    for k, head in net.heads.items():
        opts[k] = torch.optim.Adam(head.parameters(), lr=2e-3 if k == "pose" else 1e-3, fused=True)
    balance = Balancer(LOSSES, net.trunk, a.beta)
    g = torch.Generator().manual_seed(a.seed)
    recent = collections.deque(maxlen=20)

    start = time.perf_counter()
    for step in range(a.steps):
        x, target = train.batch(a.bs, g)
        out = net(x)
        losses = {t: fn(out[t], target[t]) for t, fn in LOSSES.items()}
        if step % a.balance_every == 0:
            balance.update(losses)
        total = balance(losses)
        for o in opts.values():
            o.zero_grad(set_to_none=True)
        total.backward()
        for o in opts.values():
            o.step()
        recent.append(total.detach())
        if (step + 1) % 80 == 0:
            m = evaluate(net, test)
            print("step %d loss %.3f | group %.3f pose %.3f attr %.3f | w %s" % (
                step + 1, torch.stack(list(recent)).mean(), m["group"], m["pose"], m["attr"],
                " ".join("%s=%.2f" % kv for kv in balance.w.items())), flush=True)
    took = time.perf_counter() - start
    print("loop_s=%.3f steps=%d" % (took, a.steps))


if __name__ == "__main__":
    main()
