# Recurrent classifier of noisy pen trajectories with an orthogonal transition matrix.
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

CFG = dict(
    hidden=128,
    length=48,
    classes=8,
    batch=256,
    steps=100,
    eval_every=50,
    lr=2e-3,
    clip=1.0,
    seed=11,
)


class ModReLU(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(size).uniform_(-0.01, 0.01))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class OrthogonalCell(nn.Module):
    """h' = modrelu(W_rec h + W_in x), with W_rec on the orthogonal group."""

    def __init__(self, n_in, hidden):
        super().__init__()
        self.inp = nn.Linear(n_in, hidden)
        self.rec = nn.Linear(hidden, hidden, bias=False)
        nn.init.orthogonal_(self.rec.weight)
        orthogonal(self.rec, "weight", orthogonal_map="cayley")
        self.act = ModReLU(hidden)

    def project(self, x):
        return self.inp(x)

    def forward(self, proj, h):
        return self.act(proj + self.rec(h))


class TrajectoryNet(nn.Module):
    def __init__(self, n_in, hidden, classes):
        super().__init__()
        self.cell = OrthogonalCell(n_in, hidden)
        self.hidden = hidden
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(),
                                  nn.Linear(hidden, classes))

    def forward(self, x):
        steps = self.cell.project(x).unbind(1)
        h = x.new_zeros(x.shape[0], self.hidden)
        with parametrize.cached():
            for proj in steps:
                h = self.cell(proj, h)
        return self.head(h)


class Trajectories:
    """Lissajous figures; the class is the pair of frequencies."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(seed)
        pairs = [(a, b) for a in range(1, 5) for b in range(a, 5)]
        self.freq = torch.tensor(pairs[:cfg["classes"]], dtype=torch.float32)
        self.t = torch.linspace(0, 2 * math.pi, cfg["length"])

    def sample(self, n):
        label = torch.randint(0, len(self.freq), (n,), generator=self.g)
        phase = torch.rand(n, 2, 1, generator=self.g) * 2 * math.pi
        scale = 0.5 + torch.rand(n, 2, 1, generator=self.g)
        xy = scale * torch.sin(self.freq[label][:, :, None] * self.t + phase)
        xy = xy + 0.1 * torch.randn(xy.shape, generator=self.g)
        vel = torch.diff(xy, dim=2, prepend=xy[:, :, :1])
        return torch.cat([xy, vel * 4], 1).transpose(1, 2).contiguous(), label


def accuracy(model, data, n):
    model.eval()
    with torch.no_grad():
        x, y = data.sample(n)
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def defect(model):
    with torch.no_grad():
        w = model.cell.rec.weight
        return (w.T @ w - torch.eye(w.shape[0])).abs().max().item()


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg["seed"])
    train_data = Trajectories(cfg, cfg["seed"] + 1)
    test_data = Trajectories(cfg, cfg["seed"] + 2)
    model = TrajectoryNet(4, cfg["hidden"], cfg["classes"])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=cfg["lr"], alpha=0.9)

    def update():
        x, y = train_data.sample(cfg["batch"])
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
        optimizer.step()
        return loss.detach()

    for _ in range(2):
        update()

    start = time.perf_counter()
    running = torch.zeros(())
    for step in range(1, cfg["steps"] + 1):
        running += update()
        if step % cfg["eval_every"] == 0:
            acc = accuracy(model, test_data, 512)
            print(f"[{step:4d}] loss {running.item() / cfg['eval_every']:.4f} "
                  f"test acc {acc:.3f} orthogonality {defect(model):.1e}")
            running.zero_()
    elapsed = time.perf_counter() - start
    print("loop_s=%.3f steps=%d" % (elapsed, cfg["steps"]))


if __name__ == "__main__":
    main(CFG)
