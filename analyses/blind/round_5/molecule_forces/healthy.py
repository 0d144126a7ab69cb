"""SchNet-like energy and force network on small clusters of atoms (forces from the energy by autograd)."""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


# ---------------------------------------------------------------- reference data
def lennard_jones(pos, eps, sigma):
    """Energies and forces of a batch of clusters, (B, N, 3)."""
    pos = pos.detach().requires_grad_(True)
    i, j = torch.triu_indices(pos.shape[1], pos.shape[1], 1)
    r = (pos[:, i] - pos[:, j]).norm(dim=-1)
    s6 = (sigma[:, i] * 0.5 + sigma[:, j] * 0.5).div(r).pow(6)
    e = 4 * (eps[:, i] * eps[:, j]).sqrt() * (s6 * s6 - s6)
    energy = e.sum(-1)
    force = -torch.autograd.grad(energy.sum(), pos)[0]
    return energy.detach(), force


def make_clusters(n, atoms, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(*[torch.arange(3.0)] * 3, indexing="ij"), -1).view(-1, 3) * 1.2
    pick = torch.stack([torch.randperm(27, generator=g)[:atoms] for _ in range(n)])
    pos = grid[pick] + 0.08 * torch.randn(n, atoms, 3, generator=g)
    kind = torch.randint(0, 3, (n, atoms), generator=g)
    eps = torch.tensor([0.2, 0.5, 0.9])[kind]
    sigma = torch.tensor([0.90, 1.00, 1.08])[kind]
    energy, force = lennard_jones(pos, eps, sigma)
    keep = force.abs().amax((1, 2)) < 40
    return pos[keep], kind[keep], energy[keep], force[keep]


# ---------------------------------------------------------------- model
class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(2.0)


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, dim), ShiftedSoftplus(), nn.Linear(dim, dim))
        self.before = nn.Linear(dim, dim, bias=False)
        self.after = nn.Sequential(nn.Linear(dim, dim), ShiftedSoftplus(), nn.Linear(dim, dim))

    def forward(self, x, rbf, cut):
        w = self.filter(rbf) * cut.unsqueeze(-1)
        return x + self.after(torch.einsum("bijd,bjd->bid", w, self.before(x)))


class SchNet(nn.Module):
    def __init__(self, dim=64, n_rbf=20, depth=3, cutoff=4.0, kinds=3):
        super().__init__()
        self.embed = nn.Embedding(kinds, dim)
        self.register_buffer("centres", torch.linspace(0.5, cutoff, n_rbf))
        self.gamma = 0.5 / (cutoff / n_rbf) ** 2
        self.cutoff = cutoff
        self.blocks = nn.ModuleList(Interaction(dim, n_rbf) for _ in range(depth))
        self.read = nn.Sequential(nn.Linear(dim, dim // 2), ShiftedSoftplus(), nn.Linear(dim // 2, 1))

    def forward(self, pos, kind):
        n = pos.shape[1]
        eye = torch.eye(n)
        diff = pos.unsqueeze(2) - pos.unsqueeze(1)
        r = ((diff * diff).sum(-1) + eye).sqrt()
        cut = 0.5 * (torch.cos(math.pi * r / self.cutoff) + 1) * (r < self.cutoff) * (1 - eye)
        rbf = torch.exp(-self.gamma * (r.unsqueeze(-1) - self.centres) ** 2)
        x = self.embed(kind)
        for block in self.blocks:
            x = block(x, rbf, cut)
        return self.read(x).sum((1, 2))

    def energy_and_force(self, pos, kind, training):
        pos = pos.detach().requires_grad_(True)
        energy = self(pos, kind)
        force = -torch.autograd.grad(energy.sum(), pos, create_graph=training)[0]
        return energy, force


class Averaged:
    """Exponential moving average of the weights, used for evaluation."""

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model)
        self.decay = decay
        self.target = [p.data for p in self.model.parameters()]
        self.source = [p.data for p in model.parameters()]

    def update(self):
        torch._foreach_lerp_(self.target, self.source, 1 - self.decay)


def grad_report(model):
    names, params = zip(*model.named_parameters())
    norms = torch.stack(torch._foreach_norm([p.grad for p in params]))
    top = int(norms.argmax())
    return names[top], norms[top].item()


def evaluate(model, data, batch=128):
    pos, kind, energy, force = data
    de, df, n = 0.0, 0.0, 0
    for sl in torch.arange(len(pos)).split(batch):
        e, f = model.energy_and_force(pos[sl], kind[sl], training=False)
        de += (e.detach() - energy[sl]).abs().sum().item()
        df += (f - force[sl]).abs().mean((1, 2)).sum().item()
        n += len(sl)
    return de / n, df / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--atoms", type=int, default=14)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--eval-every", type=int, default=35)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--force-weight", type=float, default=0.9)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train = make_clusters(6000, args.atoms, 1)
    valid = make_clusters(256, args.atoms, 2)
    mean, std = train[2].mean(), train[2].std()
    train, valid = [(p, k, (e - mean) / std, f / std) for p, k, e, f in (train, valid)]
    pos, kind, energy, force = train
    print(f"{len(pos)} clusters, energy {mean:.2f} +- {std:.2f}")

    model = SchNet()
    average = Averaged(model, 0.98)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    curve = []
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, len(pos), (args.batch,))
        e, f = model.energy_and_force(pos[idx], kind[idx], training=True)
        loss = (1 - args.force_weight) * F.mse_loss(e, energy[idx]) + args.force_weight * F.mse_loss(f, force[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update()
        curve.append(loss.detach())
        if step % 10 == 0:
            worst, norm = grad_report(model)
            print(f"{step:4d} loss {curve[-1].item():.4f}  largest gradient {norm:.3f} ({worst})")
        if step % args.eval_every == 0:
            mae_e, mae_f = evaluate(average.model, valid)
            print(f"{step:4d} energy MAE {mae_e:.4f}  force MAE {mae_f:.4f}")
    took = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (took, args.steps))


if __name__ == "__main__":
    main()
