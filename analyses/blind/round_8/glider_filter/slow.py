"""Differentiable Kalman filter behind a sensor encoder: state of an underwater glider."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    state: int = 10
    obs: int = 5
    raw: int = 120
    hidden: int = 320
    horizon: int = 32
    dives: int = 600
    batch: int = 96
    steps: int = 130
    lr: float = 2e-3
    seed: int = 17


class Simulator:
    def __init__(self, s: Settings):
        g = torch.Generator().manual_seed(s.seed)
        q, _ = torch.linalg.qr(torch.randn(s.state, s.state, generator=g))
        self.A = 0.97 * torch.matrix_exp(0.2 * (q - q.T))
        self.C = torch.randn(s.obs, s.state, generator=g) / s.state ** 0.5
        self.W1 = torch.randn(s.obs, 64, generator=g)
        self.W2 = torch.randn(64, s.raw, generator=g) / 8
        self.g, self.s = g, s

    def run(self, n):
        s, g = self.s, self.g
        x = torch.randn(n, s.state, generator=g)
        states, raws = [], []
        for _ in range(s.horizon):
            x = x @ self.A.T + 0.1 * torch.randn(n, s.state, generator=g)
            y = x @ self.C.T + 0.1 * torch.randn(n, s.obs, generator=g)
            raws.append(torch.tanh(y @ self.W1) @ self.W2 + 0.1 * torch.randn(n, s.raw, generator=g))
            states.append(x)
        return torch.stack(raws, 1), torch.stack(states, 1)


class SensorEncoder(nn.Module):
    def __init__(self, raw, hidden, obs):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(raw, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, obs))

    def forward(self, x):
        return self.net(x)


class KalmanLayer(nn.Module):
    """Linear-Gaussian state space model with learnt A, C, Q, R."""

    def __init__(self, state, obs):
        super().__init__()
        self.A = nn.Parameter(0.95 * torch.eye(state) + 0.02 * torch.randn(state, state))
        self.C = nn.Parameter(torch.randn(obs, state) / state ** 0.5)
        self.log_q = nn.Parameter(torch.full((state,), -2.0))
        self.log_r = nn.Parameter(torch.full((obs,), -2.0))
        self.m0 = nn.Parameter(torch.zeros(state))
        self.log_p0 = nn.Parameter(torch.zeros(state))
        self.register_buffer("eye", torch.eye(state))

    def forward(self, y):
        b, horizon, _ = y.shape
        Q, R = torch.diag(self.log_q.exp()), torch.diag(self.log_r.exp())
        A, C = self.A, self.C
        m = self.m0.expand(b, -1)
        P = torch.diag(self.log_p0.exp()).expand(b, -1, -1)
        means, nll = [], 0.0
        for t in range(horizon):
            # predict
            m = m @ A.T
            P = A @ P @ A.T + Q
            # update
            e = y[:, t] - m @ C.T
            S = C @ P @ C.T + R
            chol = torch.linalg.cholesky(S)
            gain = torch.cholesky_solve(C @ P, chol).mT
            white = torch.linalg.solve_triangular(chol, e.unsqueeze(-1), upper=False).squeeze(-1)
            logdet = 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            nll = nll + 0.5 * (white.square().sum(-1) + logdet).mean()
            m = m + (gain @ e.unsqueeze(-1)).squeeze(-1)
            P = (self.eye - gain @ C) @ P
            P = 0.5 * (P + P.mT)
            means.append(m)
        return torch.stack(means, 1), nll / horizon


class GliderTracker(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.encoder = SensorEncoder(s.raw, s.hidden, s.obs)
        self.filter = KalmanLayer(s.state, s.obs)
        self.readout = nn.Linear(s.state, s.state)

    def forward(self, raw):
        means, nll = self.filter(self.encoder(raw))
        return self.readout(means), nll


def objective(model, raw, state):
    pred, nll = model(raw)
    return F.mse_loss(pred, state) + 0.01 * nll


def main():
    s = Settings()
    torch.manual_seed(s.seed)
    sim = Simulator(s)
    raw, state = sim.run(s.dives)
    raw_val, state_val = sim.run(s.batch)
    model = GliderTracker(s)
    opt = torch.optim.Adam(model.parameters(), lr=s.lr, fused=True)

    def update():
        idx = torch.randint(0, s.dives, (s.batch,))
        loss = objective(model, raw[idx], state[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        return loss

    update()  # warm-up, no optimizer step
    begin = time.perf_counter()
    for step in range(1, s.steps + 1):
        loss = update()
        opt.step()
        if step % 20 == 0:
            with torch.no_grad():
                pred, _ = model(raw_val)
                rmse = F.mse_loss(pred, state_val).sqrt()
            print(f"[{step:3d}/{s.steps}] loss {loss.item():.4f} val rmse {rmse.item():.4f}")
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - begin, s.steps))


if __name__ == "__main__":
    main()
