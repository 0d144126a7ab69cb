# Handwriting synthesis: LSTM with a mixture density output over pen offsets.
import dataclasses
import logging
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("handwriting")


@dataclasses.dataclass
class Config:
    strokes: int = 3000
    points: int = 64
    hidden: int = 160
    layers: int = 2
    mixtures: int = 10
    batch: int = 32
    steps: int = 240
    lr: float = 2e-3
    clip: float = 5.0
    eval_every: int = 60
    seed: int = 11


def make_strokes(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.linspace(0, 1, cfg.points + 1)
    out = np.zeros((cfg.strokes, cfg.points + 1, 3), dtype=np.float32)
    for i in range(cfg.strokes):
        fx, fy = rng.uniform(2, 7, size=2)
        phase = rng.uniform(0, 2 * np.pi, size=2)
        slant = rng.normal(0, 0.3)
        y = np.sin(2 * np.pi * fy * t + phase[1]) * rng.uniform(0.5, 1.2)
        x = 6 * t + 0.6 * np.cos(2 * np.pi * fx * t + phase[0]) + slant * y
        out[i, :, 0] = np.gradient(x) + rng.normal(0, 0.01, len(t))
        out[i, :, 1] = np.gradient(y) + rng.normal(0, 0.01, len(t))
        out[i, :, 2] = np.sin(2 * np.pi * fx * t) > 0.93
    out[..., :2] /= out[..., :2].std(axis=(0, 1))
    return torch.from_numpy(out)


class MixtureHead(nn.Module):
    def __init__(self, width, mixtures):
        super().__init__()
        self.m = mixtures
        self.proj = nn.Linear(width, 6 * mixtures + 1)

    def forward(self, h):
        o = self.proj(h)
        logit_pi, mx, my, lsx, lsy, r = o[..., :-1].split(self.m, dim=-1)
        sx, sy = lsx.clamp(-4, 4).exp(), lsy.clamp(-4, 4).exp()
        rho = 0.95 * torch.tanh(r)
        return logit_pi.log_softmax(-1), mx, my, sx, sy, rho, o[..., -1]


def component_log_prob(xy, mx, my, sx, sy, rho):
    x, y = xy.unsqueeze(-1).unbind(-2)
    u, v = (x - mx) / sx, (y - my) / sy
    rest = 1 - rho * rho
    z = (u * u + v * v - 2 * rho * u * v) / rest
    return -0.5 * z - torch.log(sx * sy) - 0.5 * torch.log(rest) - math.log(2 * math.pi)


class PenModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rnn = nn.LSTM(3, cfg.hidden, cfg.layers, batch_first=True)
        self.head = MixtureHead(cfg.hidden, cfg.mixtures)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h)

    def loss(self, seq):
        inp, tgt = seq[:, :-1], seq[:, 1:]
        log_pi, mx, my, sx, sy, rho, pen = self(inp)
        comp = component_log_prob(tgt[..., :2], mx, my, sx, sy, rho)
        nll = -torch.logsumexp(log_pi + comp, dim=-1).mean()
        lift = nn.functional.binary_cross_entropy_with_logits(pen, tgt[..., 2])
        return nll + lift, nll, lift


@torch.no_grad()
def evaluate(model, seqs):
    model.eval()
    val = model.loss(seqs)[0].item()
    model.train()
    return val


@torch.no_grad()
def sample(model, n):
    """Draws one line of n points, to look at."""
    x, state, pts = torch.zeros(1, 1, 3), None, []
    for _ in range(n):
        h, state = model.rnn(x, state)
        log_pi, mx, my, sx, sy, rho, pen = (v[0, 0] for v in model.head(h))
        k = torch.multinomial(log_pi.exp(), 1).item()
        a, b = torch.randn(2).tolist()
        dx = mx[k] + sx[k] * a
        dy = my[k] + sy[k] * (rho[k] * a + math.sqrt(1 - rho[k].item() ** 2) * b)
        x = torch.stack([dx, dy, (torch.rand(()) < pen.sigmoid()).float()]).view(1, 1, 3)
        pts.append(x.view(3))
    return torch.stack(pts)


def batches(loader):
    while True:
        for (seq,) in loader:
            yield seq


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    seqs = make_strokes(cfg)
    val, train = seqs[:64], seqs[64:]
    loader = DataLoader(TensorDataset(train), batch_size=cfg.batch, shuffle=True, drop_last=True)
    model = PenModel(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    it = batches(loader)

    t0 = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        loss, nll, lift = model.loss(next(it))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        opt.step()
        if step % 20 == 0:
            log.info("step %d nll %.4f pen %.4f", step, nll.item(), lift.item())
        if step % cfg.eval_every == 0:
            log.info("step %d validation %.4f", step, evaluate(model, val))
    loop = time.perf_counter() - t0

    line = sample(model, 40)
    log.info("sample spans %.2f x %.2f", *line[:, :2].cumsum(0).abs().max(0).values.tolist())
    print("loop_s=%.3f steps=%d" % (loop, cfg.steps))


if __name__ == "__main__":
    main()
