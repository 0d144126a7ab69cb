"""Variational autoencoder on simulated infrared spectra.

Spectra are simulated on the fly by a background thread so that no two batches repeat.
"""
import logging
import queue
import threading
import time
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

log = logging.getLogger("vae")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

CFG = SimpleNamespace(
    channels=1024, batch=320, hidden=(640, 320), latent=24, beta=0.2,
    steps=60, lr=1e-3, prefetch=6, compounds=12, report=15, seed=7,
)


class SpectraSimulator:
    """Mixtures of a few pure-compound spectra with baseline drift and detector noise."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        axis = np.linspace(0, 1, cfg.channels, dtype=np.float32)
        library = np.zeros((cfg.compounds, cfg.channels), np.float32)
        shape_rng = np.random.default_rng(1234)
        for row in library:
            for _ in range(shape_rng.integers(3, 9)):
                mu, width = shape_rng.uniform(0.05, 0.95), shape_rng.uniform(0.004, 0.03)
                row += shape_rng.uniform(0.2, 1) * np.exp(-0.5 * ((axis - mu) / width) ** 2)
        self.library = library
        self.drift = np.stack([np.ones_like(axis), axis, axis ** 2])

    def batch(self):
        n = self.cfg.batch
        conc = self.rng.dirichlet(np.full(self.cfg.compounds, 0.4), n).astype(np.float32)
        base = self.rng.normal(0, 0.05, (n, 3)).astype(np.float32) @ self.drift
        noise = self.rng.standard_normal((n, self.cfg.channels), dtype=np.float32)
        return conc @ self.library + base + 0.01 * noise


class BackgroundFeed:
    def __init__(self, simulator, capacity):
        self.simulator = simulator
        self.ready = queue.Queue(maxsize=capacity)
        self.running = True
        self.thread = threading.Thread(target=self._produce, name="feed", daemon=True)
        self.thread.start()

    def _produce(self):
        while self.running:
            x = self.simulator.batch()
            self.ready.put(torch.from_numpy(x))

    def get(self):
        return self.ready.get()

    def close(self):
        self.running = False
        while self.thread.is_alive():
            try:
                self.ready.get(timeout=0.05)
            except queue.Empty:
                pass


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
    return nn.Sequential(*layers)


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.enc = mlp((cfg.channels, *cfg.hidden))
        self.stats = nn.Linear(cfg.hidden[-1], 2 * cfg.latent)
        self.dec = mlp((cfg.latent, *reversed(cfg.hidden)))
        self.out = nn.Linear(cfg.hidden[0], cfg.channels)

    def forward(self, x):
        mu, logvar = self.stats(self.enc(x)).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.out(self.dec(z)), mu, logvar


def elbo(x, recon, mu, logvar, beta):
    rec = (recon - x).square().sum(-1).mean()
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(-1).mean()
    return rec + beta * kl, rec, kl


@torch.no_grad()
def evaluate(model, x, beta):
    model.eval()
    recon, mu, logvar = model(x)
    total, rec, kl = elbo(x, recon, mu, logvar, beta)
    active = (mu.var(0) > 0.01).sum().item()
    model.train()
    return total.item(), rec.item(), kl.item(), active


def train(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    test = torch.from_numpy(SpectraSimulator(cfg, cfg.seed + 1).batch())
    feed = BackgroundFeed(SpectraSimulator(cfg, cfg.seed), cfg.prefetch)
    model = VAE(cfg)
    optim = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(optim, cfg.lr * 3, total_steps=cfg.steps + 1)

    began = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        x = feed.get()
        recon, mu, logvar = model(x)
        loss, rec, kl = elbo(x, recon, mu, logvar, cfg.beta)
        optim.zero_grad()
        loss.backward()
        optim.step()
        sched.step()
        if step % cfg.report == 0:
            total, r, k, active = evaluate(model, test, cfg.beta)
            log.info("step %d test elbo %.3f rec %.3f kl %.3f active %d", step, total, r, k, active)
    seconds = time.perf_counter() - began
    feed.close()
    return seconds


if __name__ == "__main__":
    took = train(CFG)
    print(f"loop_s={took:.3f} steps={CFG.steps}")
