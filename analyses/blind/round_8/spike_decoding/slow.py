"""Decode hand velocity from spike counts: leaky synaptic traces, a mixing layer and a temporal ConvNet."""
import logging
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("decode")


@dataclass
class Cfg:
    neurons: int = 384
    bins: int = 300
    go_cue: int = 12
    move_len: int = 40
    trials: int = 288
    valid: int = 32
    batch: int = 8
    hidden: int = 256
    kernel: int = 5
    decay: tuple = (0.30, 0.56)
    steps: int = 100
    lr: float = 1e-3
    eval_every: int = 25
    seed: int = 3


class Sessions:
    """Reaches to random targets: neurons are tuned to direction and fire around the movement."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.cfg = cfg
        angle = rng.uniform(0, 2 * math.pi, cfg.trials)
        onset = cfg.go_cue + rng.integers(0, 10, cfg.trials)
        phase = (np.arange(cfg.bins)[None] - onset[:, None]) / cfg.move_len
        speed = np.where((phase > 0) & (phase < 1), np.sin(np.pi * np.clip(phase, 0, 1)) ** 2, 0.0)
        self.traces = self.leaky(torch.from_numpy(self.fire(rng, angle, speed)))
        vel = np.stack([np.cos(angle), np.sin(angle)], -1)[:, None] * speed[..., None]
        self.velocity = torch.from_numpy(vel.astype(np.float32))
        self.n_train = cfg.trials - cfg.valid

    def fire(self, rng, angle, speed):
        """Poisson counts; the rate follows a cosine tuning curve and the speed of the hand."""
        preferred = rng.uniform(0, 2 * math.pi, self.cfg.neurons)
        gain = rng.gamma(2.0, 0.4, self.cfg.neurons)
        drive = np.maximum(np.cos(angle[:, None] - preferred[None]), 0) * gain
        return rng.poisson(speed[:, :, None] * drive[:, None, :]).astype(np.float32)

    def leaky(self, spikes):
        """Exponential synaptic trace of every neuron, with a time constant of its own."""
        decay = torch.linspace(*self.cfg.decay, self.cfg.neurons)
        out = torch.empty_like(spikes)
        state = torch.zeros_like(spikes[:, 0])
        for t in range(spikes.shape[1]):
            state = state * decay + spikes[:, t]
            out[:, t] = state
        return out

    def batch(self, gen):
        idx = torch.randint(self.n_train, (self.cfg.batch,), generator=gen)
        return self.traces[idx], self.velocity[idx]

    def held_out(self):
        return self.traces[self.n_train:], self.velocity[self.n_train:]


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.mix = nn.Linear(cfg.neurons, cfg.hidden)
        self.conv = nn.Conv1d(cfg.hidden, cfg.hidden, cfg.kernel, padding=cfg.kernel // 2)
        self.norm = nn.LayerNorm(cfg.hidden)
        self.out = nn.Linear(cfg.hidden, 2)

    def forward(self, traces):
        h = F.gelu(self.mix(traces))
        h = h + F.gelu(self.conv(h.transpose(1, 2))).transpose(1, 2)
        return self.out(self.norm(h))


@torch.no_grad()
def r_squared(model, data):
    model.eval()
    traces, true = data.held_out()
    pred = torch.cat([model(part) for part in traces.split(data.cfg.batch)])
    model.train()
    return (1 - (pred - true).square().sum() / (true - true.mean()).square().sum()).item()


def run(cfg):
    torch.manual_seed(cfg.seed)
    data = Sessions(cfg)
    model = Decoder(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(cfg.seed)

    def fit():
        traces, velocity = data.batch(gen)
        loss = F.mse_loss(model(traces), velocity)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.detach()

    fit()
    t0 = time.perf_counter()
    total = torch.zeros(())
    for step in range(1, cfg.steps + 1):
        total += fit()
        if step % cfg.eval_every == 0:
            log.info("step %d mse %.5f r2 %.3f", step, total.item() / cfg.eval_every, r_squared(model, data))
            total.zero_()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, cfg.steps))


if __name__ == "__main__":
    run(Cfg())
