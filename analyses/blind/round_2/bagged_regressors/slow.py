import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def friedman(n, rng):
    x = rng.random((n, 12))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x.astype(np.float32), ((y - 14) / 5 + rng.normal(0, 0.1, n)).astype(np.float32)


class Member:
    def __init__(self, seed, n):
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Linear(12, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 2)
        ).to(device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.bag = np.random.default_rng(seed).integers(0, n, n)
        self.best, self.state = float("inf"), None

    def step(self, x, y):
        mean, logvar = self.net(x).unbind(1)
        loss = F.gaussian_nll_loss(mean, y, logvar.exp())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self, x, y):
        score = F.mse_loss(self.net(x)[:, 0], y).item()
        if score < self.best:
            self.best, self.state = score, copy.deepcopy(self.net.state_dict())
        return score


rng = np.random.default_rng(4)
x, y = friedman(4096, rng)
xv, yv = (torch.from_numpy(a).to(device) for a in friedman(512, rng))
members = [Member(s, len(x)) for s in range(4)]
batch = 512


def fetch(rows):
    xb = torch.tensor(np.array(x[rows]), dtype=torch.float32).clone().to(device)
    yb = torch.tensor(np.array(y[rows]), dtype=torch.float32).clone().to(device)
    return xb.contiguous().detach(), yb.contiguous().detach()


def main():
    for m in members:
        m.step(*fetch(m.bag[:64]))
    steps = 0
    start = time.perf_counter()
    for epoch in range(20):
        total = 0.0
        for i in range(0, len(x), batch):
            for m in members:
                xb, yb = fetch(m.bag[i : i + batch])
                total += m.step(xb, yb)
                steps += 1
        scores = [m.validate(xv, yv) for m in members]
        with torch.no_grad():
            joint = torch.stack([m.net(xv)[:, 0] for m in members]).mean(0)
        print(f"epoch {epoch} nll {total / steps:.3f} members {np.mean(scores):.4f} ensemble {F.mse_loss(joint, yv).item():.4f}")
    print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}")


if __name__ == "__main__":
    main()
