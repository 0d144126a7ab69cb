#!/usr/bin/env python
"""Spiking network for short event bursts, e.g. touches on an electronic skin.

A stimulus of a few tens of milliseconds is followed by a silent response window in
which the slow readout integrates what the hidden populations have left.
"""
import argparse
import logging
import math
import time

import torch
from torch import nn

logger = logging.getLogger("snn")


class SurrogateSpike(torch.autograd.Function):
    slope = 5.0

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1.0 + SurrogateSpike.slope * v.abs()).square()


spike = SurrogateSpike.apply


def decay(dt, tau):
    return math.exp(-dt / tau)


class SynapticLayer(nn.Module):
    """Current-based leaky integrate and fire neurons with a subtractive reset."""

    def __init__(self, n_in, n_out, dt, tau_syn, tau_mem, gain):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * gain / math.sqrt(n_in))
        self.alpha = decay(dt, tau_syn)
        self.beta = decay(dt, tau_mem)

    def start(self, batch):
        zeros = self.weight.new_zeros(batch, self.weight.shape[1])
        return zeros, zeros, zeros

    def drive(self, x):
        return x @ self.weight

    def forward(self, drive, state):
        current, voltage, out = state
        current = torch.add(drive, current, alpha=self.alpha)
        voltage = torch.lerp(current, voltage, self.beta) - out
        out = spike(voltage - 1.0)
        return out, (current, voltage, out)


class SpikingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.first = SynapticLayer(cfg.channels, cfg.hidden, cfg.dt, cfg.tau_syn, cfg.tau_mem, 9.0)
        self.second = SynapticLayer(cfg.hidden, cfg.hidden, cfg.dt, cfg.tau_syn, cfg.tau_mem, 12.0)
        self.readout = nn.Linear(cfg.hidden, cfg.classes)
        self.kappa = decay(cfg.dt, cfg.tau_out)

    def forward(self, events):
        # events: time, batch, channel
        batch = events.shape[1]
        s1, s2 = self.first.start(batch), self.second.start(batch)
        trace = s2[0]
        total = 0.0
        for drive in self.first.drive(events).unbind(0):
            z1, s1 = self.first(drive, s1)
            z2, s2 = self.second(self.second.drive(z1), s2)
            trace = torch.lerp(z2, trace, self.kappa)
            total = total + trace
        return self.readout(total), total.mean() / len(events)


class Touches:
    """Every class is a sequence of a few channel groups hit one after the other."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)
        proto = torch.Generator().manual_seed(17)
        self.template = torch.rand(cfg.classes, cfg.burst, cfg.channels, generator=proto)
        self.template = 0.9 * (self.template > 0.86).float() + 0.02

    def sample(self, n):
        y = torch.randint(self.cfg.classes, (n,), generator=self.gen)
        p = self.template[y]
        burst = (torch.rand(p.shape, generator=self.gen) < p).float()
        events = torch.zeros(self.cfg.window, n, self.cfg.channels)
        events[:self.cfg.burst] = burst.transpose(0, 1)
        return events, y


def build_parser():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--channels", type=int, default=64)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--burst", type=int, default=30, help="length of the stimulus in time steps")
    p.add_argument("--window", type=int, default=420, help="length of a trial in time steps")
    p.add_argument("--dt", type=float, default=1.0)
    p.add_argument("--tau-syn", type=float, default=1.5)
    p.add_argument("--tau-mem", type=float, default=2.0)
    p.add_argument("--tau-out", type=float, default=120.0)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--rate-target", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    return p


def evaluate(net, data, n):
    net.eval()
    with torch.no_grad():
        events, y = data.sample(n)
        logits, rate = net(events)
    net.train()
    return (logits.argmax(1) == y).float().mean().item(), rate.item()


def main():
    cfg = build_parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    net = SpikingNet(cfg)
    data, held_out = Touches(cfg, cfg.seed + 1), Touches(cfg, cfg.seed + 2)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    ce = nn.CrossEntropyLoss()

    def step():
        events, y = data.sample(cfg.batch)
        logits, rate = net(events)
        loss = ce(logits, y) + 10.0 * (rate - cfg.rate_target).square()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    step()
    tick = time.perf_counter()
    for i in range(cfg.steps):
        loss = step()
        if (i + 1) % 20 == 0:
            acc, rate = evaluate(net, held_out, cfg.batch)
            logger.info("step %d loss %.4f accuracy %.3f rate %.4f", i + 1, loss.item(), acc, rate)
    took = time.perf_counter() - tick
    print("loop_s=%.3f steps=%d" % (took, cfg.steps))


if __name__ == "__main__":
    main()
