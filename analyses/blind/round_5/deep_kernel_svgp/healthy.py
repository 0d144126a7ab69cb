"""Deep-kernel sparse variational GP regression (uncertainty for a soft sensor in a distillation column).

Feature network -> RBF kernel on learnt features -> SVGP with whitened inducing values.
"""
import csv
import io
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn


@dataclass
class Settings:
    rows: int = 24_000
    sensors: int = 28
    latent: int = 6
    inducing: int = 320
    batch: int = 1024
    steps: int = 600
    report: int = 100
    lr: float = 5e-3
    jitter: float = 1e-3
    seed: int = 21


def column_data(cfg: Settings):
    """Correlated sensors driven by a slow latent state; quality is a bent function of the state."""
    rng = np.random.default_rng(cfg.seed)
    state = np.cumsum(rng.normal(0, 0.05, (cfg.rows, 5)), axis=0)
    state = np.sin(state)
    mix = rng.normal(0, 1, (5, cfg.sensors))
    x = np.tanh(state @ mix) + rng.normal(0, 0.1, (cfg.rows, cfg.sensors))
    y = state[:, 0] * state[:, 1] + np.abs(state[:, 2]) + 0.3 * np.sin(3 * state[:, 3]) + rng.normal(0, 0.05, cfg.rows)
    x = (x - x.mean(0)) / x.std(0)
    y = (y - y.mean()) / y.std()
    cut = cfg.rows - 2048
    f32 = lambda a: torch.from_numpy(a.astype(np.float32))
    return (f32(x[:cut]), f32(y[:cut])), (f32(x[cut:]), f32(y[cut:]))


class FeatureNet(nn.Sequential):
    def __init__(self, d_in, d_out):
        super().__init__(nn.Linear(d_in, 128), nn.SiLU(), nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, d_out))


class DeepKernelSVGP(nn.Module):
    def __init__(self, cfg: Settings, x_init: Tensor):
        super().__init__()
        self.features = FeatureNet(cfg.sensors, cfg.latent)
        self.log_scale = nn.Parameter(torch.zeros(cfg.latent))
        self.log_signal = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-1.5))
        with torch.no_grad():
            self.z = nn.Parameter(self.features(x_init) * 3.0)
        self.q_mean = nn.Parameter(torch.zeros(cfg.inducing))
        self.q_tril = nn.Parameter(torch.eye(cfg.inducing) * 0.5)
        self.jitter = cfg.jitter

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        d2 = (a * a).sum(-1, keepdim=True) - 2 * a @ b.T + (b * b).sum(-1)
        return self.log_signal.exp() * torch.exp(-0.5 * d2.clamp_min(0))

    def kzz(self) -> Tensor:
        k = self.kernel(self.z, self.z)
        return k + self.jitter * torch.eye(len(k))

    @torch.no_grad()
    def health(self):
        spectrum = torch.linalg.eigvalsh(self.kzz())
        return {"lambda_min": spectrum[0], "cond": spectrum[-1] / spectrum[0],
                "eff_rank": spectrum.sum() / spectrum[-1]}

    def posterior(self, x: Tensor):
        h = self.features(x) * 3.0
        chol = torch.linalg.cholesky(self.kzz())
        proj = torch.linalg.solve_triangular(chol, self.kernel(self.z, h), upper=False)     # (M, B)
        mean = proj.T @ self.q_mean
        spread = self.q_tril.tril().T @ proj
        var = self.log_signal.exp() - (proj * proj).sum(0) + (spread * spread).sum(0)
        return mean, var.clamp_min(1e-6)

    def kl(self) -> Tensor:
        L = self.q_tril.tril()
        logdet = L.diagonal().abs().clamp_min(1e-8).log().sum()
        return 0.5 * ((L * L).sum() + self.q_mean @ self.q_mean - len(self.q_mean)) - logdet

    def elbo(self, x: Tensor, y: Tensor, n: int) -> Tensor:
        mean, var = self.posterior(x)
        noise = self.log_noise.exp()
        ll = -0.5 * (math.log(2 * math.pi) + self.log_noise + ((y - mean) ** 2 + var) / noise)
        return ll.mean() - self.kl() / n


@torch.no_grad()
def score(model, x, y):
    mean, var = model.posterior(x)
    var = var + model.log_noise.exp()
    nlpd = 0.5 * (torch.log(2 * math.pi * var) + (y - mean) ** 2 / var)
    return ((y - mean) ** 2).mean().sqrt().item(), nlpd.mean().item()


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    (x, y), (xv, yv) = column_data(cfg)
    model = DeepKernelSVGP(cfg, x[torch.randperm(len(x))[:cfg.inducing]])
    optim = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    sink = io.StringIO()
    report = csv.writer(sink)
    report.writerow(["step", "elbo", "rmse", "nlpd", "cond", "eff_rank"])

    tic = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        idx = torch.randint(0, len(x), (cfg.batch,))
        elbo = model.elbo(x[idx], y[idx], len(x))
        optim.zero_grad()
        (-elbo).backward()
        optim.step()
        if step % cfg.report == 0:
            rmse, nlpd = score(model, xv, yv)
            health = model.health()
            row = [step, f"{elbo.item():.4f}", f"{rmse:.4f}", f"{nlpd:.4f}",
                   f"{health['cond'].item():.3e}", f"{health['eff_rank'].item():.2f}"]
            report.writerow(row)
            print("  ".join(map(str, row)))
    toc = time.perf_counter()

    with torch.no_grad():
        _, var = model.posterior(xv[:256])
    print(f"mean predictive sd {var.sqrt().mean().item():.4f}, {len(sink.getvalue())} bytes of report")
    print("loop_s=%.3f steps=%d" % (toc - tic, cfg.steps))


if __name__ == "__main__":
    main()
