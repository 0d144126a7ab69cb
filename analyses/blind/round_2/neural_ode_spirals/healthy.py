import argparse
import math
import time

import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, t, z):
        return self.net(torch.cat([z, t.expand(z.shape[0], 1)], 1))


def rk4(f, z, times):
    out = [z]
    for t0, t1 in zip(times[:-1], times[1:]):
        h = t1 - t0
        k1 = f(t0, z)
        k2 = f(t0 + h / 2, z + h / 2 * k1)
        k3 = f(t0 + h / 2, z + h / 2 * k2)
        k4 = f(t1, z + h * k3)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(z)
    return torch.stack(out, 1)


class LatentODE(nn.Module):
    def __init__(self, obs, latent, hidden):
        super().__init__()
        self.encoder = nn.GRU(obs, hidden, batch_first=True)
        self.to_latent = nn.Linear(hidden, latent)
        self.field = Field(latent, hidden)
        self.decoder = nn.Linear(latent, obs)

    def forward(self, x, times):
        _, h = self.encoder(x[:, : x.shape[1] // 2].flip(1))
        return self.decoder(rk4(self.field, self.to_latent(h[0]), times))


def spirals(n, length, gen):
    t = torch.linspace(0, 4 * math.pi, length)
    phase = torch.rand(n, 1, generator=gen) * 2 * math.pi
    grow = 0.5 + torch.rand(n, 1, generator=gen)
    sign = torch.where(torch.rand(n, 1, generator=gen) < 0.5, -1.0, 1.0)
    r = 0.2 + grow * t / 12
    xy = torch.stack([r * torch.cos(sign * t + phase), r * torch.sin(sign * t + phase)], -1)
    return xy + 0.02 * torch.randn(n, length, 2, generator=gen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    data = spirals(4000, args.length, gen)
    times = torch.linspace(0, 1, args.length)
    model = LatentODE(2, 8, 96)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step():
        x = data[torch.randint(len(data), (args.batch,), generator=gen)]
        loss = (model(x, times) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(2):
        step()
    start = time.perf_counter()
    for i in range(args.steps):
        loss = step()
        if i % 10 == 0:
            print(f"{i} mse {loss.item():.4f}")
    print(f"loop_s={time.perf_counter() - start:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
