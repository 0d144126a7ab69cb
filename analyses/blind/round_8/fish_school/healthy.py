#!/usr/bin/env python
# Learning the interaction rules of a fish school from tracked trajectories,
# by differentiating through short rollouts of the simulated school.
import argparse
import logging
import sys
import time

import torch
from torch import nn

log = logging.getLogger("school")


def reference_force(pos, vel):
    """The hidden rules: attraction, short-range repulsion, alignment."""
    d = pos.unsqueeze(-3) - pos.unsqueeze(-2)
    r = d.norm(dim=-1, keepdim=True).clamp_min(1e-2)
    attract = d * 0.05
    repel = -0.02 * d / r ** 2 * (r < 0.8)
    dv = vel.unsqueeze(-3) - vel.unsqueeze(-2)
    align = 0.1 * dv * torch.exp(-r)
    return (attract + repel + align).mean(-2) - 0.1 * vel


def record_tracks(n_schools, n_fish, n_frames, dt, gen):
    pos = torch.randn(n_schools, n_fish, 2, generator=gen)
    vel = torch.randn(n_schools, n_fish, 2, generator=gen) * 0.3
    frames = []
    for _ in range(n_frames):
        frames.append(torch.cat([pos, vel], -1))
        vel = vel + dt * reference_force(pos, vel)
        pos = pos + dt * vel
    return torch.stack(frames, 1)


class PairForce(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(5, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden + 2, 2)

    def forward(self, pos, vel):
        d = pos.unsqueeze(-3) - pos.unsqueeze(-2)
        dv = vel.unsqueeze(-3) - vel.unsqueeze(-2)
        r2 = d.square().sum(-1, keepdim=True)
        message = self.pair(torch.cat([d, dv, torch.exp(-r2)], -1)).mean(-2)
        return self.out(torch.cat([message, vel], -1))


class School(nn.Module):
    def __init__(self, hidden, dt):
        super().__init__()
        self.force = PairForce(hidden)
        self.dt = dt

    def rollout(self, pos, vel, horizon):
        track = []
        for t in range(horizon):
            acc = self.force(pos, vel)
            vel = vel + self.dt * acc
            pos = pos + self.dt * vel
            log.debug("t=%d pos=%s vel=%s acc=%s", t, pos, vel, acc)
            track.append(torch.cat([pos, vel], -1))
        return torch.stack(track, 1)


def sample(tracks, batch, horizon, gen):
    s = torch.randint(0, tracks.shape[0], (batch,), generator=gen)
    t = torch.randint(0, tracks.shape[1] - horizon - 1, (batch,), generator=gen)
    window = tracks[s.unsqueeze(1), t.unsqueeze(1) + torch.arange(horizon + 1)]
    return window[:, 0, :, :2], window[:, 0, :, 2:], window[:, 1:]


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--schools", type=int, default=60)
    p.add_argument("--fish", type=int, default=24)
    p.add_argument("--frames", type=int, default=80)
    p.add_argument("--horizon", type=int, default=8)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--dt", type=float, default=0.1)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--seed", type=int, default=3)
    a = p.parse_args(argv)

    logging.basicConfig(stream=sys.stdout, format="%(levelname).1s %(message)s",
                        level=logging.DEBUG if a.verbose else logging.INFO)
    torch.manual_seed(a.seed)
    gen = torch.Generator().manual_seed(a.seed)
    tracks = record_tracks(a.schools, a.fish, a.frames, a.dt, gen)
    train, held = tracks[:-8], tracks[-8:]

    model = School(a.hidden, a.dt)
    opt = torch.optim.Adam(model.parameters(), lr=a.lr, fused=True)

    def loss_of(data, batch):
        pos, vel, target = sample(data, batch, a.horizon, gen)
        return (model.rollout(pos, vel, a.horizon) - target).square().mean()

    loss_of(train, a.batch).backward()
    opt.zero_grad()

    t0 = time.perf_counter()
    for step in range(1, a.steps + 1):
        loss = loss_of(train, a.batch)
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 30 == 0:
            with torch.no_grad():
                val = loss_of(held, a.batch)
            log.info("step %d loss %.3e held-out %.3e", step, loss.item(), val.item())
    seconds = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (seconds, a.steps))


if __name__ == "__main__":
    main()
