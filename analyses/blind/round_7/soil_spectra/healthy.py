# Soil properties from visible / near-infrared reflectance: autoencoder with a regression head.
# The weights are trained with a memory-saving Adam that keeps its moments in a low-rank subspace of
# each gradient (as GaLore does), the subspace being renewed every few steps.
import argparse
import math
import time

import torch
from torch import nn

BANDS = 2151  # 350 .. 2500 nm, one a nanometre


def make_library(n, gen):
    """Mixtures of smooth end-members with absorption features, scatter, and noise."""
    grid = torch.linspace(0, 1, BANDS)
    members = []
    for _ in range(14):
        base = 0.3 + 0.4 * torch.rand(1, generator=gen) * grid.sqrt()
        for _ in range(4):
            c, w, d = torch.rand(3, generator=gen)
            base = base - 0.15 * d * torch.exp(-((grid - c) / (0.01 + 0.06 * w)) ** 2)
        members.append(base)
    members = torch.stack(members)
    mix = torch.distributions.Dirichlet(torch.full((14,), 0.6)).sample((n,))
    x = mix @ members
    x = x * (1 + 0.1 * torch.randn(n, 1, generator=gen)) + 0.004 * torch.randn(n, BANDS, generator=gen)
    props = torch.tanh(mix @ torch.randn(14, 6, generator=gen)) + 0.02 * torch.randn(n, 6, generator=gen)
    x = (x - x.mean(0)) / x.std(0)
    return x, props


class SpectraNet(nn.Module):
    def __init__(self, code=160):
        super().__init__()
        self.encode = nn.Linear(BANDS, code)
        self.mid = nn.Sequential(nn.GELU(), nn.Linear(code, code), nn.GELU())
        self.decode = nn.Linear(code, BANDS)
        self.props = nn.Linear(code, 6)

    def forward(self, x):
        z = self.mid(self.encode(x))
        return self.decode(z), self.props(z)


class LowRankAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, rank=24, renew=10):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, rank=rank, renew=renew))

    @staticmethod
    def subspace(g, rank):
        """Orthonormal basis of the leading directions on the short side of g."""
        if g.shape[0] > g.shape[1]:
            g = g.T
        w, u = torch.linalg.eigh(g @ g.T)
        return u[:, -rank:].flip(1).contiguous()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g, st = p.grad, self.state[p]
                low = g.dim() == 2 and min(g.shape) > 2 * group["rank"]
                tall = low and g.shape[0] > g.shape[1]
                if low:
                    if st.get("age", 0) % group["renew"] == 0:
                        st["basis"] = self.subspace(g, group["rank"])
                        st["age"] = 0
                        st.pop("m", None)
                    g = g @ st["basis"] if tall else st["basis"].T @ g
                if "m" not in st:
                    st["m"], st["v"], st["t"] = torch.zeros_like(g), torch.zeros_like(g), 0
                st["t"] += 1
                st["age"] = st.get("age", 0) + 1
                st["m"].lerp_(g, 1 - b1)
                st["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
                mh = st["m"] / (1 - b1 ** st["t"])
                vh = st["v"] / (1 - b2 ** st["t"])
                d = mh / (vh.sqrt() + group["eps"])
                if low:
                    d = d @ st["basis"].T if tall else st["basis"] @ d
                p.add_(d, alpha=-group["lr"])


def r2(pred, y):
    return (1 - ((pred - y) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)).mean().item()


def main():
    ap = argparse.ArgumentParser(description="soil spectroscopy with a low-rank optimiser")
    ap.add_argument("--samples", type=int, default=6144)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--rank", type=int, default=24)
    ap.add_argument("--renew", type=int, default=10)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_library(args.samples + 512, gen)
    x, y, vx, vy = x[:-512], y[:-512], x[-512:], y[-512:]

    net = SpectraNet()
    opt = LowRankAdam(net.parameters(), lr=args.lr, rank=args.rank, renew=args.renew)
    order, at = torch.randperm(len(x), generator=gen), 0
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        if at + args.batch > len(x):
            order, at = torch.randperm(len(x), generator=gen), 0
        rows = order[at:at + args.batch]
        at += args.batch
        xb, yb = x[rows], y[rows]
        rec, props = net(xb)
        loss = nn.functional.mse_loss(rec, xb) + 2.0 * nn.functional.mse_loss(props, yb)
        opt.zero_grad()
        loss.backward()
        for grp in opt.param_groups:
            grp["lr"] = args.lr * 0.5 * (1 + math.cos(math.pi * step / args.steps))
        opt.step()
        if step % 75 == 0:
            with torch.no_grad():
                print(f"{step:5d} loss {loss.item():.4f} r2 {r2(net(vx)[1], vy):.3f}")
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, args.steps))


if __name__ == "__main__":
    main()
