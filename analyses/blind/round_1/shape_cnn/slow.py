"""Classify rendered shapes (disc, box, cross, ring) with a small CNN."""
import gc
import os
import queue
import shutil
import tempfile
import threading
import time
import zlib

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

SIDE = 32
BATCH = 32
EPOCHS = 3
SHARDS = 40


def draw(kind, rng):
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    cy, cx = rng.uniform(10, 22, size=2)
    r = rng.uniform(5, 9)
    d = np.hypot(yy - cy, xx - cx)
    if kind == 0:
        m = d < r
    elif kind == 1:
        m = (abs(yy - cy) < r) & (abs(xx - cx) < r)
    elif kind == 2:
        m = (abs(yy - cy) < 2) | (abs(xx - cx) < 2)
    else:
        m = (d < r) & (d > r - 3)
    img = m[None] * rng.uniform(0.4, 1.0, size=(3, 1, 1)) + rng.normal(0, 0.15, size=(3, SIDE, SIDE))
    return (img.clip(0, 1) * 255).astype(np.uint8)


def write_shards(root):
    rng = np.random.default_rng(3)
    paths = []
    for s in range(SHARDS):
        y = rng.integers(0, 4, size=BATCH)
        x = np.stack([draw(k, rng) for k in y])
        path = os.path.join(root, f"shard_{s:03d}.bin")
        with open(path, "wb") as f:
            f.write(y.astype(np.uint8).tobytes())
            f.write(zlib.compress(x.tobytes(), 1))
        paths.append(path)
    return paths


class ShardReader(threading.Thread):
    """Reads and decodes shards ahead of the training loop."""

    def __init__(self, paths, depth=4):
        super().__init__(daemon=True)
        self.paths = paths
        self.batches = queue.Queue(maxsize=depth)

    def run(self):
        for path in self.paths:
            with open(path, "rb") as f:
                raw = f.read()
            y = np.frombuffer(raw[:BATCH], dtype=np.uint8).astype(np.int64)
            x = np.frombuffer(zlib.decompress(raw[BATCH:]), dtype=np.uint8).reshape(BATCH, 3, SIDE, SIDE)
            self.batches.put((torch.from_numpy(x.astype(np.float32) / 255.0), torch.from_numpy(y)))
        self.batches.put(None)

    def __iter__(self):
        while True:
            item = self.batches.get()
            if item is None:
                return
            yield item


class MemoryWatch(threading.Thread):
    """Keeps the peak number of bytes held in live tensors."""

    def __init__(self, period):
        super().__init__(daemon=True)
        self.period = period
        self.peak = 0
        self.done = threading.Event()

    def measure(self):
        total = 0
        for obj in gc.get_objects():
            if isinstance(obj, torch.Tensor):
                total += obj.numel() * obj.element_size()
        return total

    def run(self):
        while not self.done.wait(self.period):
            self.peak = max(self.peak, self.measure())


def make_net():
    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(block(3, 32), block(32, 64), block(64, 64), nn.Flatten(), nn.Linear(64 * 16, 4))


def run_epoch(net, opt, paths):
    reader = ShardReader(paths)
    reader.start()
    total, right, seen, steps = 0.0, 0, 0, 0
    for x, y in reader:
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(y)
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
        steps += 1
    reader.join()
    return total / seen, right / seen, steps


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    root = tempfile.mkdtemp()
    try:
        paths = write_shards(root)
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        order = np.random.default_rng(0)
        run_epoch(net, opt, paths[:4])
        watch = MemoryWatch(0.25)
        watch.start()
        steps = 0
        t0 = time.perf_counter()
        for epoch in range(EPOCHS):
            shuffled = [paths[i] for i in order.permutation(len(paths))]
            loss, acc, n = run_epoch(net, opt, shuffled)
            steps += n
            print(f"epoch {epoch} loss {loss:.3f} acc {acc:.3f}")
        loop = time.perf_counter() - t0
        watch.done.set()
        watch.join()
        print(f"peak {watch.peak / 2**20:.1f} MiB")
    finally:
        shutil.rmtree(root)
    print(f"loop_s={loop:.3f} steps={steps}")


if __name__ == "__main__":
    main()
