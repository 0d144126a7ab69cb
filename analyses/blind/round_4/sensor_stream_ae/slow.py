"""Online anomaly detection: an autoencoder learns from a live stream of sensor windows.

A feeder thread stands for the acquisition side, an alert thread keeps robust running statistics of the
reconstruction error of every window and raises alarms.
"""
import argparse
import logging
import queue
import threading
import time
from collections import deque

import numpy as np
import torch
from torch import nn

logger = logging.getLogger("stream")
STOP = object()


class SensorFeed(threading.Thread):
    """Simulates a plant with `sensors` channels and emits stacked windows."""

    def __init__(self, out, batches, batch, window, sensors, seed):
        super().__init__(daemon=True, name="feed")
        self.out, self.batches, self.batch = out, batches, batch
        self.window, self.sensors = window, sensors
        self.rng = np.random.default_rng(seed)
        self.freq = self.rng.uniform(0.02, 0.2, sensors).astype(np.float32)
        self.noise = self.rng.standard_normal((4 * batch, window, sensors), dtype=np.float32) * 0.1

    def run(self):
        steps = np.arange(self.window, dtype=np.float32)[:, None] * self.freq
        table = np.sin(np.linspace(0, 2 * np.pi, 4096, dtype=np.float32))
        for _ in range(self.batches):
            phase = self.rng.uniform(0, 1, (self.batch, 1, self.sensors)).astype(np.float32)
            index = ((phase + steps) * 4096).astype(np.int32) & 4095
            lo = int(self.rng.integers(0, 3 * self.batch))
            x = table[index] + self.noise[lo:lo + self.batch]
            bad = self.rng.integers(0, self.batch, 2)
            x[bad, self.window // 2:, 0] += 1.5
            self.out.put(torch.from_numpy(x.reshape(self.batch, -1)))
        self.out.put(STOP)


class AlertThread(threading.Thread):
    def __init__(self, scores, history=200, k=6.0):
        super().__init__(daemon=True, name="alerts")
        self.scores, self.k = scores, k
        self.medians = deque(maxlen=history)
        self.alarms = 0

    def run(self):
        while True:
            try:
                item = self.scores.get_nowait()
            except queue.Empty:
                continue
            if item is STOP:
                break
            self.handle(item)

    def handle(self, errors):
        med = float(np.median(errors))
        mad = float(np.median(np.abs(errors - med))) + 1e-9
        self.medians.append(med)
        self.alarms += int((errors > med + self.k * mad).sum())


class AutoEncoder(nn.Module):
    def __init__(self, n_in, hidden=1024, code=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, n_in))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    warmup = 3
    incoming, scores = queue.Queue(maxsize=8), queue.Queue()
    feed = SensorFeed(incoming, args.steps + warmup, args.batch, args.window, args.sensors, args.seed)
    alerts = AlertThread(scores)
    model = AutoEncoder(args.window * args.sensors)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    feed.start()
    alerts.start()

    step, begin = -warmup, time.perf_counter()
    while True:
        batch = incoming.get()
        if batch is STOP:
            break
        if step == 0:
            begin = time.perf_counter()
        errors = (model(batch) - batch).square().mean(1)
        loss = errors.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        scores.put(errors.detach().numpy())
        step += 1
        if step > 0 and step % args.log_every == 0:
            logger.info("step %d  loss %.4f  alarms %d", step, loss.item(), alerts.alarms)
    scores.put(STOP)
    alerts.join()
    seconds = time.perf_counter() - begin
    feed.join()
    logger.info("alarms %d, running median %.4f", alerts.alarms, np.mean(alerts.medians))
    return seconds, step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--sensors", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--seed", type=int, default=9)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    print("loop_s=%.3f steps=%d" % train(parser.parse_args()))
