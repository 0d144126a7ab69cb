"""Operator learning for one-dimensional heat flow with a DeepONet."""
import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rods", type=int, default=9000)
    p.add_argument("--held-out", type=int, default=400)
    p.add_argument("--sensors", type=int, default=96)
    p.add_argument("--nx", type=int, default=64)
    p.add_argument("--nt", type=int, default=48)
    p.add_argument("--modes", type=int, default=24)
    p.add_argument("--basis", type=int, default=128)
    p.add_argument("--hidden", type=int, default=320)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--points", type=int, default=512)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--validate", type=int, default=75)
    p.add_argument("--checkpoint", type=int, default=25)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def heat_data(o):
    """Series solutions of u_t = a u_xx with cold ends for random initial profiles."""
    rng = np.random.default_rng(o.seed)
    k = np.arange(1, o.modes + 1)
    amplitude = (rng.normal(size=(o.rods, o.modes)) / k ** 1.1).astype(np.float32)
    x, t = np.linspace(0, 1, o.nx), np.linspace(0, 1, o.nt)
    where = np.linspace(0, 1, o.sensors + 2)[1:-1]
    initial = amplitude @ np.sin(np.pi * np.outer(k, where)).astype(np.float32)
    damping = np.exp(-0.01 * (np.pi * k)[:, None] ** 2 * t)
    shape = damping[:, :, None] * np.sin(np.pi * np.outer(k, x))[:, None]
    u = amplitude @ shape.reshape(o.modes, -1).astype(np.float32)
    tx = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    xt = tx[:, ::-1].astype(np.float32)
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in (initial, u, xt))


def dense(d_in, hidden, d_out):
    return nn.Sequential(nn.Linear(d_in, hidden), nn.GELU(),
                         nn.Linear(hidden, hidden), nn.GELU(),
                         nn.Linear(hidden, hidden), nn.GELU(),
                         nn.Linear(hidden, d_out))


class OperatorNet(nn.Module):
    def __init__(self, sensors, hidden, basis, waves=8):
        super().__init__()
        self.branch = dense(sensors, hidden, basis)
        self.trunk = dense(2 + 2 * waves, hidden, basis)
        self.offset = nn.Parameter(torch.zeros(1))
        self.register_buffer("freq", torch.arange(1, waves + 1) * math.pi)

    def forward(self, profile, xt):
        phase = xt[:, :1] * self.freq
        basis = self.trunk(torch.cat([xt, phase.sin(), phase.cos()], 1))
        return torch.addmm(self.offset, self.branch(profile), basis.t())


def validation_error(net, profile, field, xt):
    with torch.no_grad():
        diff = net(profile, xt) - field
    return (diff.norm(dim=1) / field.norm(dim=1)).mean().item()


def main():
    o = options()
    torch.manual_seed(o.seed)
    initial, u, xt = heat_data(o)
    net = OperatorNet(o.sensors, o.hidden, o.basis)
    adam = torch.optim.Adam(net.parameters(), lr=o.lr)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, o.steps)
    sampler = torch.Generator().manual_seed(o.seed)
    examples = u[:8].clone()        # goes into every checkpoint, for plots
    print(f"{o.rods} rods, {sum(w.numel() for w in net.parameters())} parameters")

    with tempfile.TemporaryDirectory(prefix="deeponet_") as tmp:
        target_file, partial = Path(tmp, "last.pt"), Path(tmp, "last.pt.tmp")
        begin = time.perf_counter()
        acc = 0.0
        for step in range(1, o.steps + 1):
            rows = torch.randint(o.held_out, o.rods, (o.batch,), generator=sampler)
            cols = torch.randint(0, len(xt), (o.points,), generator=sampler)
            loss = (net(initial[rows], xt[cols]) - u[rows[:, None], cols]).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            cosine.step()
            acc += loss.item()
            if step % o.validate == 0:
                err = validation_error(net, initial[:o.held_out], u[:o.held_out], xt)
                print(f"{step:5d} | mse {acc / o.validate:.5f} | relative error {err:.4f}")
                acc = 0.0
            if step % o.checkpoint == 0:
                torch.save({"step": step, "options": vars(o), "net": net.state_dict(),
                            "adam": adam.state_dict(), "cosine": cosine.state_dict(),
                            "examples": examples}, partial)
                partial.replace(target_file)
        elapsed = time.perf_counter() - begin
    print(f"loop_s={elapsed:.3f} steps={o.steps}")


if __name__ == "__main__":
    main()
