# Density estimation of correlated detector channels with a RealNVP flow.
import math
import threading
import time
from collections import deque

import torch
from torch import nn

SEED = 21
DIM = 24
LAYERS = 8
HIDDEN = 192
BATCH = 1024
STEPS = 270
EVAL_EVERY = 45


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        half = dim // 2
        self.net = nn.Sequential(nn.Linear(half, hidden), nn.SiLU(),
                                 nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, 2 * half))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 2.0 * torch.tanh(s / 2.0)
        b = b * s.exp() + t
        out = torch.cat([b, a] if self.flip else [a, b], 1)
        return out, s.sum(1)

    def inverse(self, y):
        a, b = y.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 2.0 * torch.tanh(s / 2.0)
        b = (b - t) * torch.exp(-s)
        return torch.cat([b, a] if self.flip else [a, b], 1)


class Shuffle(nn.Module):
    """Deals the two halves into each other like a deck of cards."""

    def forward(self, x):
        return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1), 0.0

    def inverse(self, y):
        return y.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)


class Flow(nn.Module):
    def __init__(self, dim, hidden, layers):
        super().__init__()
        parts = []
        for k in range(layers):
            parts += [Coupling(dim, hidden, flip=bool(k % 2))]
            if k % 2 and k < layers - 1:
                parts += [Shuffle()]
        self.parts = nn.ModuleList(parts)
        self.dim = dim

    def log_prob(self, x):
        logdet = 0.0
        for part in self.parts:
            x, ld = part(x)
            logdet = logdet + ld
        return logdet - 0.5 * x.square().sum(1) - 0.5 * self.dim * math.log(2 * math.pi)

    @torch.no_grad()
    def sample(self, n):
        x = torch.randn(n, self.dim)
        for part in reversed(self.parts):
            x = part.inverse(x)
        return x


class Detector:
    """Channels share a few latent sources and saturate softly."""

    def __init__(self, dim, seed):
        g = torch.Generator().manual_seed(99)
        self.mix = torch.randn(6, dim, generator=g) / math.sqrt(6)
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, n):
        source = torch.randn(n, 6, generator=self.gen)
        source[:, 0] = source[:, 0].abs()
        signal = torch.tanh(source @ self.mix * 1.5)
        return signal + 0.1 * torch.randn(signal.shape, generator=self.gen)


class Monitor(threading.Thread):
    """Keeps a running picture of the training for the status line."""

    def __init__(self, model, lock, period=0.05):
        super().__init__(daemon=True)
        self.watched = [p for n, p in model.named_parameters() if n.endswith("4.weight")]
        self.lock = lock
        self.period = period
        self.losses = deque(maxlen=EVAL_EVERY)
        self.norms = []
        self.closing = threading.Event()

    def push(self, value):
        with self.lock:
            self.losses.append(value)

    @torch.no_grad()
    def run(self):
        while not self.closing.wait(self.period):
            with self.lock:
                self.norms = [p.norm().item() for p in self.watched]

    def status(self):
        with self.lock:
            mean = sum(self.losses) / len(self.losses)
            return f"nll {mean:.3f} widest layer {max(self.norms, default=0.0):.3f}"

    def close(self):
        self.closing.set()
        self.join()


@torch.no_grad()
def held_out(model, data, rounds=4):
    return -sum(model.log_prob(x).mean().item() for x in data[:rounds]) / rounds


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    train, test = Detector(DIM, 1), Detector(DIM, 2)
    test_batches = [test.draw(BATCH) for _ in range(4)]
    model = Flow(DIM, HIDDEN, LAYERS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    lock = threading.Lock()
    monitor = Monitor(model, lock)
    monitor.start()

    def step():
        loss = -model.log_prob(train.draw(BATCH)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        with lock:
            optimizer.step()
        monitor.push(loss.item())

    for _ in range(3):
        step()
    begin = time.perf_counter()
    for i in range(1, STEPS + 1):
        step()
        if i % EVAL_EVERY == 0:
            spread = model.sample(512).std().item()
            print(f"{i:4d} {monitor.status()} test nll {held_out(model, test_batches):.3f} "
                  f"sample std {spread:.3f}", flush=True)
    took = time.perf_counter() - begin
    monitor.close()
    print("loop_s=%.3f steps=%d" % (took, STEPS))


if __name__ == "__main__":
    main()
