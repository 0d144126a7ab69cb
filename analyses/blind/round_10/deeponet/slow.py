"""DeepONet for heat conduction in a rod: initial temperature -> temperature at any (x, t)."""
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Settings:
    rods: int = 9000
    sensors: int = 96
    grid_x: int = 64
    grid_t: int = 48
    modes: int = 24
    basis: int = 128
    hidden: int = 320
    batch: int = 256
    points: int = 512
    steps: int = 300
    lr: float = 1e-3
    val_every: int = 75
    save_every: int = 25
    seed: int = 5


def solve_rods(cfg):
    """Exact series solutions with fixed ends; the amplitudes and the diffusivity are random."""
    rng = np.random.default_rng(cfg.seed)
    k = np.arange(1, cfg.modes + 1)
    amp = (rng.normal(size=(cfg.rods, cfg.modes)) / k ** 1.1).astype(np.float32)
    xs = np.linspace(0, 1, cfg.sensors + 2)[1:-1]
    gx = np.linspace(0, 1, cfg.grid_x)
    gt = np.linspace(0, 1, cfg.grid_t)
    start = amp @ np.sin(np.pi * np.outer(k, xs)).astype(np.float32)
    decay = np.exp(-0.01 * (np.pi * k)[:, None] ** 2 * gt)
    basis = np.sin(np.pi * np.outer(k, gx))[:, None, :] * decay[:, :, None]
    fields = amp @ basis.reshape(cfg.modes, -1).astype(np.float32)
    tt, xx = np.meshgrid(gt, gx, indexing="ij")
    coords = np.stack([xx.ravel(), tt.ravel()], 1).astype(np.float32)
    return torch.from_numpy(start), torch.from_numpy(fields), torch.from_numpy(coords)


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.GELU()]
    return nn.Sequential(*layers[:-1])


class DeepONet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden
        self.branch = mlp(cfg.sensors, h, h, h, cfg.basis)
        self.trunk = mlp(2 + 16, h, h, h, cfg.basis)
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("freq", torch.arange(1, 9) * torch.pi)

    def forward(self, sensors, coords):
        wave = coords[:, :1] * self.freq
        features = torch.cat([coords, wave.sin(), wave.cos()], 1)
        return self.branch(sensors) @ self.trunk(features).t() + self.bias


class Checkpointer:
    """Keeps the last state, and a few reference fields for the plots made from it."""

    def __init__(self, folder, cfg, reference):
        self.path = os.path.join(folder, "last.pt")
        self.cfg = asdict(cfg)
        self.reference = reference

    def save(self, step, model, opt, sched):
        state = {
            "step": step,
            "config": self.cfg,
            "model": model.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
            "reference": self.reference,
        }
        torch.save(state, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)


@torch.no_grad()
def relative_error(model, sensors, fields, coords):
    pred = model(sensors, coords)
    return ((pred - fields).norm(dim=1) / fields.norm(dim=1)).mean().item()


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    sensors, fields, coords = solve_rods(cfg)
    n_val = 400
    val_s, val_f = sensors[:n_val], fields[:n_val]
    model = DeepONet(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps)
    folder = tempfile.mkdtemp(prefix="deeponet_")
    keeper = Checkpointer(folder, cfg, fields[:8])
    gen = torch.Generator().manual_seed(cfg.seed)
    print(f"{cfg.rods} rods, {sum(p.numel() for p in model.parameters())} parameters")

    begin = time.perf_counter()
    mean = 0.0
    for step in range(1, cfg.steps + 1):
        rows = torch.randint(n_val, cfg.rods, (cfg.batch,), generator=gen)
        cols = torch.randint(0, len(coords), (cfg.points,), generator=gen)
        target = fields[rows[:, None], cols]
        pred = model(sensors[rows], coords[cols])
        loss = (pred - target).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        mean += loss.item() / cfg.val_every
        if step % cfg.val_every == 0:
            err = relative_error(model, val_s, val_f, coords)
            print(f"step {step:4d}  mse {mean:.5f}  relative error {err:.4f}")
            mean = 0.0
        if step % cfg.save_every == 0:
            keeper.save(step, model, opt, sched)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    print(f"loop_s={seconds:.3f} steps={cfg.steps}")


if __name__ == "__main__":
    main()
