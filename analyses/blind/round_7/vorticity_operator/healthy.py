# Fourier neural operator: ten frames of a vorticity field in, the next four out.
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    n_sims: int = 320
    n_test: int = 16
    grid: int = 64
    frames: int = 14
    history: int = 10
    width: int = 12
    modes: int = 8
    blocks: int = 3
    batch: int = 16
    epochs: int = 10
    lr: float = 2e-3
    seed: int = 11


class Ensemble:
    """Runs of a damped, advected vorticity field on the periodic unit square."""

    def __init__(self, cfg, rng):
        n = cfg.grid
        kx = np.fft.fftfreq(n, 1.0 / n)[:, None]
        ky = np.fft.rfftfreq(n, 1.0 / n)[None, :]
        k2 = kx ** 2 + ky ** 2
        envelope = np.exp(-k2 / 40.0)
        t = np.arange(cfg.frames)[:, None, None]
        self.fields = np.empty((cfg.n_sims, cfg.frames, n, n), dtype=np.float32)
        for i in range(cfg.n_sims):
            spec = envelope * (rng.normal(size=k2.shape) + 1j * rng.normal(size=k2.shape))
            u, v = rng.normal(0.0, 0.02, 2)
            nu = rng.uniform(2e-4, 1e-3)
            phase = np.exp(-2j * np.pi * (kx * u + ky * v)[None] * t - nu * k2[None] * t)
            run = np.fft.irfft2(spec[None] * phase, s=(n, n), axes=(1, 2))
            self.fields[i] = run / run[0].std()

    def __len__(self):
        return len(self.fields)

    def batch(self, idx):
        return torch.from_numpy(self.fields[idx])


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        scale = 1.0 / width
        self.low = nn.Parameter(scale * torch.randn(width, width, modes, modes, dtype=torch.cfloat))
        self.high = nn.Parameter(scale * torch.randn(width, width, modes, modes, dtype=torch.cfloat))

    def forward(self, x):
        b, c, h, w = x.shape
        m = self.modes
        spec = torch.fft.rfft2(x, norm="ortho")
        out = torch.zeros(b, c, h, w // 2 + 1, dtype=spec.dtype)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spec[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spec[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=(h, w), norm="ortho")


class Operator(nn.Module):
    def __init__(self, cfg, out_frames):
        super().__init__()
        self.lift = nn.Conv2d(cfg.history, cfg.width, 1)
        self.spectral = nn.ModuleList(SpectralConv(cfg.width, cfg.modes) for _ in range(cfg.blocks))
        self.local = nn.ModuleList(nn.Conv2d(cfg.width, cfg.width, 1) for _ in range(cfg.blocks))
        self.project = nn.Conv2d(cfg.width, out_frames, 1)

    def forward(self, x):
        h = self.lift(x)
        for spectral, local in zip(self.spectral, self.local):
            h = torch.relu(spectral(h) + local(h))
        return x[:, -1:] + self.project(h)


def relative_l2(pred, true):
    diff = (pred - true).flatten(1).norm(dim=1)
    return (diff / true.flatten(1).norm(dim=1)).mean()


def test_error(model, test_runs, history):
    model.eval()
    with torch.no_grad():
        err = relative_l2(model(test_runs[:, :history]), test_runs[:, history:])
    model.train()
    return err.item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    data = Ensemble(cfg, rng)
    perm = rng.permutation(len(data))
    test_runs = data.batch(perm[: cfg.n_test])
    train_ids = perm[cfg.n_test:]

    model = Operator(cfg, cfg.frames - cfg.history)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    per_epoch = len(train_ids) // cfg.batch
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * per_epoch)
    test_error(model, test_runs, cfg.history)

    steps = 0
    start = time.perf_counter()
    for epoch in range(cfg.epochs):
        rng.shuffle(train_ids)
        total = 0.0
        for b in range(per_epoch):
            runs = data.batch(train_ids[b * cfg.batch:(b + 1) * cfg.batch])
            pred = model(runs[:, :cfg.history])
            loss = relative_l2(pred, runs[:, cfg.history:])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
            steps += 1
        print(f"epoch {epoch}: train {total.item() / per_epoch:.4f} "
              f"test {test_error(model, test_runs, cfg.history):.4f} lr {sched.get_last_lr()[0]:.2e}")
    elapsed = time.perf_counter() - start
    print("loop_s=%.3f steps=%d" % (elapsed, steps))


if __name__ == "__main__":
    main()
