"""Train a small SchNet-like interatomic potential on energies and forces.

Reference data come from a Lennard-Jones / Morse mixture evaluated on random clusters.
"""
import argparse
import math
import random
import time

import numpy as np
import torch
from torch import nn


def parse():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--molecules", type=int, default=1200)
    ap.add_argument("--atoms", type=int, default=26)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--cutoff", type=float, default=2.6)
    ap.add_argument("--features", type=int, default=48)
    ap.add_argument("--rbf", type=int, default=32)
    ap.add_argument("--interactions", type=int, default=2)
    ap.add_argument("--force-weight", type=float, default=20.0)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    return ap.parse_args()


# ------------------------------------------------------------------ reference

def random_cluster(rng, n_atoms):
    """Jittered lattice cut to an elongated box, so the density is like a liquid."""
    grid = np.stack(np.meshgrid(*[np.arange(6)] * 3, indexing="ij"), -1).reshape(-1, 3)
    grid = grid[(grid[:, 1] < 3) & (grid[:, 2] < 3)]
    pick = rng.choice(len(grid), n_atoms, replace=False)
    return grid[pick] * 1.35 + rng.normal(0, 0.12, size=(n_atoms, 3))


def reference(pos, species, cutoff):
    pos = pos.clone().requires_grad_(True)
    d = (pos[:, :, None] - pos[:, None]).square().sum(-1)
    eye = torch.eye(pos.shape[1], dtype=torch.bool)
    r = d.masked_fill(eye, 1.0).sqrt()
    depth = 0.2 + 0.15 * (species[:, :, None] + species[:, None]).float()
    x = torch.exp(-1.8 * (r - 1.4))
    smooth = 0.5 * (torch.cos(math.pi * r / cutoff) + 1) * (r < cutoff)
    e = (0.5 * depth * (x * x - 2 * x) * smooth).masked_fill(eye, 0.0).sum((1, 2))
    f = -torch.autograd.grad(e.sum(), pos)[0]
    return e.detach(), f


class Clusters:
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.cutoff = cfg.cutoff
        pos = np.stack([random_cluster(rng, cfg.atoms) for _ in range(cfg.molecules)])
        self.pos = torch.tensor(pos, dtype=torch.float32)
        self.species = torch.tensor(rng.integers(0, 3, size=pos.shape[:2]))
        self.energy, self.forces = reference(self.pos, self.species, cfg.cutoff)
        self.shift, self.scale = self.energy.mean(), self.energy.std()
        self.energy = (self.energy - self.shift) / self.scale
        self.forces = self.forces / self.scale

    def split(self, n_test):
        return torch.arange(n_test), torch.arange(n_test, len(self.pos))

    def batch(self, idx):
        n_mol, n_at = len(idx), self.pos.shape[1]
        i, j = torch.where(~torch.eye(n_at, dtype=torch.bool))
        offset = torch.arange(n_mol)[:, None] * n_at
        src, dst = (i + offset).reshape(-1), (j + offset).reshape(-1)
        pos = self.pos[idx].reshape(-1, 3)
        near = (pos[src] - pos[dst]).square().sum(-1) < self.cutoff ** 2
        src, dst = src[near], dst[near]
        return dict(pos=pos, species=self.species[idx].reshape(-1), src=src, dst=dst,
                    molecule=torch.arange(n_mol).repeat_interleave(n_at), n_mol=n_mol,
                    energy=self.energy[idx], forces=self.forces[idx].reshape(-1, 3))


# ---------------------------------------------------------------------- model

class Softplus0(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x) - math.log(2.0)


class Interaction(nn.Module):
    def __init__(self, width, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, width), Softplus0(), nn.Linear(width, width))
        self.lin_in = nn.Linear(width, width, bias=False)
        self.out = nn.Sequential(nn.Linear(width, width), Softplus0(), nn.Linear(width, width))

    def forward(self, h, rbf, envelope, src, dst):
        w = self.filter(rbf) * envelope[:, None]
        message = self.lin_in(h)[src] * w
        gathered = torch.zeros_like(h).index_add(0, dst, message)
        return h + self.out(gathered)


class Potential(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cutoff = cfg.cutoff
        self.embed = nn.Embedding(3, cfg.features)
        self.register_buffer("centers", torch.linspace(0.6, cfg.cutoff, cfg.rbf))
        self.gamma = (cfg.rbf / (cfg.cutoff - 0.6)) ** 2
        self.blocks = nn.ModuleList(Interaction(cfg.features, cfg.rbf)
                                    for _ in range(cfg.interactions))
        self.readout = nn.Sequential(nn.Linear(cfg.features, 32), Softplus0(), nn.Linear(32, 1))

    def energy(self, pos, b):
        src, dst = b["src"], b["dst"]
        r = (pos[src] - pos[dst]).square().sum(-1).sqrt()
        envelope = 0.5 * (torch.cos(math.pi * r / self.cutoff) + 1)
        rbf = torch.exp(-self.gamma * (r[:, None] - self.centers) ** 2)
        h = self.embed(b["species"])
        for block in self.blocks:
            h = block(h, rbf, envelope, src, dst)
        atomic = self.readout(h).squeeze(-1)
        return torch.zeros(b["n_mol"]).index_add(0, b["molecule"], atomic)

    def forward(self, b, training=True):
        pos = b["pos"].clone().requires_grad_(True)
        e = self.energy(pos, b)
        f = -torch.autograd.grad(e.sum(), pos, create_graph=training)[0]
        return e, f


def evaluate(model, data, idx, size):
    err = []
    for part in idx.split(size):
        b = data.batch(part)
        e, f = model(b, training=False)
        err.append(((e.detach() - b["energy"]).abs().mean(), (f - b["forces"]).abs().mean()))
    e, f = zip(*err)
    return torch.stack(e).mean().item(), torch.stack(f).mean().item()


def main():
    cfg = parse()
    random.seed(cfg.seed)
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    data = Clusters(cfg)
    test, train = data.split(100)
    model = Potential(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    print(f"{len(data.pos)} clusters, {sum(p.numel() for p in model.parameters())} parameters")

    def step():
        idx = train[torch.randint(len(train), (cfg.batch,))]
        b = data.batch(idx)
        e, f = model(b)
        loss = (e - b["energy"]).square().mean() + cfg.force_weight * (f - b["forces"]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(2):
        step()
    t0 = time.perf_counter()
    for n in range(1, cfg.steps + 1):
        loss = step()
        if n % 45 == 0:
            mae_e, mae_f = evaluate(model, data, test, cfg.batch)
            print(f"step {n} loss {loss.item():.4f} energy mae {mae_e:.4f} force mae {mae_f:.4f}")
    dt = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (dt, cfg.steps))


if __name__ == "__main__":
    main()
