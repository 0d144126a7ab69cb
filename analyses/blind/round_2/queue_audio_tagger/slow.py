import collections
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)

RATE, SECONDS, BATCH, STEPS, CLASSES = 8000, 1, 32, 60, 8
FRAME, HOP = 256, 128
WINDOW = np.hanning(FRAME).astype(np.float32)


def record(rng, label):
    t = np.arange(RATE * SECONDS) / RATE
    f = 200 * (label + 1) * rng.uniform(0.95, 1.05)
    wave = np.sin(2 * np.pi * f * t) + 0.5 * rng.standard_normal(len(t))
    return (wave * 8000).astype(np.int16).tobytes()


def spectrogram(raw):
    wave = np.frombuffer(raw, np.int16).astype(np.float32) / 32768
    frames = np.lib.stride_tricks.sliding_window_view(wave, FRAME)[::HOP] * WINDOW
    spec = np.abs(np.fft.rfft(frames, axis=1)).astype(np.float32)
    return np.log1p(spec[:, :128])


class Feeder:
    def __init__(self, clips, labels, size=4):
        self.clips, self.labels, self.size = clips, labels, size
        self.ready = collections.deque()
        self.stopped = False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        rng = np.random.default_rng(5)
        while not self.stopped:
            if len(self.ready) >= self.size:
                continue
            index = rng.integers(0, len(self.clips), BATCH)
            x = np.stack([spectrogram(self.clips[i]) for i in index])
            self.ready.append((torch.from_numpy(x).unsqueeze(1), torch.from_numpy(self.labels[index])))

    def next(self):
        while not self.ready:
            time.sleep(0.0005)
        return self.ready.popleft()

    def stop(self):
        self.stopped = True
        self.thread.join()


class Tagger(nn.Module):
    def __init__(self, w=20):
        super().__init__()
        self.c1 = nn.Conv2d(1, w, 3, stride=2, padding=1)
        self.c2 = nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.c3 = nn.Conv2d(2 * w, 4 * w, 3, stride=2, padding=1)
        self.fc = nn.Linear(4 * w, CLASSES)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


def main():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 300)
    clips = [record(rng, c) for c in labels]
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    feeder = Feeder(clips, labels)

    def step():
        x, y = feeder.next()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(2):
        step()
    mean = 0.0
    start = time.perf_counter()
    for i in range(STEPS):
        mean = mean + step()
        if i % 20 == 19:
            print(f"step {i + 1} loss {(mean / 20).item():.3f}")
            mean = 0.0
    seconds = time.perf_counter() - start
    feeder.stop()
    print(f"loop_s={seconds:.3f} steps={STEPS}")


if __name__ == "__main__":
    main()
