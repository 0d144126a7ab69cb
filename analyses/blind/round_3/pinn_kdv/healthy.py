"""Physics-informed network for the Korteweg-de Vries equation

    u_t + 6 u u_x + u_xxx = 0,      x in [-10, 10], t in [0, 1]

with a single soliton as the reference solution. Collocation points are redrawn from a
scrambled Sobol sequence every `resample` steps.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from scipy.stats import qmc

X_MIN, X_MAX, T_MAX = -10.0, 10.0, 1.0


def soliton(x, t, speed=1.5):
    return 0.5 * speed / np.cosh(0.5 * np.sqrt(speed) * (x - speed * t + 2.0)) ** 2


def as_tensor(a):
    return torch.as_tensor(a, dtype=torch.float32)


class Sampler:
    def __init__(self, seed):
        self.sobol = qmc.Sobol(d=2, scramble=True, seed=seed)
        self.rng = np.random.default_rng(seed)

    def interior(self, n):
        pts = qmc.scale(self.sobol.random(n), [X_MIN, 0.0], [X_MAX, T_MAX])
        return as_tensor(pts)

    def initial(self, n):
        x = self.rng.uniform(X_MIN, X_MAX, (n, 1))
        xt = np.hstack([x, np.zeros_like(x)])
        return as_tensor(xt), as_tensor(soliton(x, 0.0))

    def boundary(self, n):
        t = self.rng.uniform(0, T_MAX, (n, 1))
        x = np.where(self.rng.random((n, 1)) < 0.5, X_MIN, X_MAX)
        return as_tensor(np.hstack([x, t])), as_tensor(soliton(x, t))

    @staticmethod
    def grid(nx=128, nt=32):
        x, t = np.meshgrid(np.linspace(X_MIN, X_MAX, nx), np.linspace(0, T_MAX, nt))
        xt = np.stack([x.ravel(), t.ravel()], axis=1)
        return as_tensor(xt), as_tensor(soliton(xt[:, :1], xt[:, 1:]))


class Field(nn.Module):
    """tanh MLP with inputs scaled to [-1, 1]."""

    def __init__(self, width, depth):
        super().__init__()
        self.register_buffer("shift", torch.tensor([(X_MIN + X_MAX) / 2, T_MAX / 2]))
        self.register_buffer("scale", torch.tensor([2 / (X_MAX - X_MIN), 2 / T_MAX]))
        layers, d = [], 2
        for _ in range(depth):
            lin = nn.Linear(d, width)
            nn.init.xavier_normal_(lin.weight)
            nn.init.zeros_(lin.bias)
            layers += [lin, nn.Tanh()]
            d = width
        self.body = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, xt):
        return self.body((xt - self.shift) * self.scale)


def d_dx(y, xt):
    return torch.autograd.grad(y.sum(), xt, create_graph=True)[0]


def residual(net, xt):
    xt = xt.detach().requires_grad_(True)
    u = net(xt)
    du = d_dx(u, xt)
    u_x, u_t = du[:, :1], du[:, 1:]
    u_xx = d_dx(u_x, xt)[:, :1]
    u_xxx = d_dx(u_xx, xt)[:, :1]
    return u_t + 6 * u * u_x + u_xxx


def relative_error(net, grid):
    xt, ref = grid
    with torch.no_grad():
        return ((net(xt) - ref).norm() / ref.norm()).item()


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--n-interior", type=int, default=1024)
    p.add_argument("--n-initial", type=int, default=256)
    p.add_argument("--n-boundary", type=int, default=128)
    p.add_argument("--w-initial", type=float, default=20.0)
    p.add_argument("--w-boundary", type=float, default=5.0)
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--resample", type=int, default=10)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    sampler = Sampler(args.seed)
    net = Field(args.width, args.depth)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    grid = sampler.grid()

    t0 = time.perf_counter()
    for step in range(args.steps):
        if step % args.resample == 0:
            inside = sampler.interior(args.n_interior)
            xt0, u0 = sampler.initial(args.n_initial)
            xtb, ub = sampler.boundary(args.n_boundary)
        pde = residual(net, inside).square().mean()
        ic = (net(xt0) - u0).square().mean()
        bc = (net(xtb) - ub).square().mean()
        loss = pde + args.w_initial * ic + args.w_boundary * bc
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if (step + 1) % 40 == 0:
            print(f"{step + 1:5d}  loss {loss.item():.3e}  pde {pde.item():.3e}  ic {ic.item():.3e}  "
                  f"bc {bc.item():.3e}  rel.err {relative_error(net, grid):.3f}")
    seconds = time.perf_counter() - t0
    print(f"loop_s={seconds:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
