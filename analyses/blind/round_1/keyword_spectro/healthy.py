"""Keyword spotting: log-mel features and a small convolutional net."""
import glob
import os
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

RATE, NFFT, HOP, MELS, WORDS = 8000, 256, 128, 40, 5


def synth(word, rng):
    t = np.arange(RATE) / RATE
    f = 300 * (word + 1) * (1 + 0.1 * rng.normal())
    env = np.exp(-((t - rng.uniform(0.3, 0.7)) / 0.15) ** 2)
    sig = env * np.sin(2 * np.pi * (f * t + 40 * word * t ** 2)) + rng.normal(0, 0.02, size=RATE)
    return (np.clip(sig, -1, 1) * 32000).astype("<i2")


def record(root, n):
    rng = np.random.default_rng(21)
    for k in range(n):
        w = int(rng.integers(0, WORDS))
        with wave.open(os.path.join(root, f"{w}_{k:04d}.wav"), "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(RATE)
            f.writeframes(synth(w, rng).tobytes())


def mel_basis():
    hz = np.linspace(0, RATE / 2, NFFT // 2 + 1)
    mel = lambda h: 2595 * np.log10(1 + h / 700)
    edges = np.linspace(mel(0), mel(RATE / 2), MELS + 2)
    m = mel(hz)[None]
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.maximum(0, np.minimum((m - lo) / (mid - lo), (hi - m) / (hi - mid)))


class Clips(Dataset):
    def __init__(self, root):
        self.files = sorted(glob.glob(os.path.join(root, "*.wav")))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with wave.open(self.files[i]) as f:
            pcm = np.frombuffer(f.readframes(f.getnframes()), dtype="<i2")
        return torch.from_numpy(pcm.astype(np.float32) / 32768.0), int(os.path.basename(self.files[i])[0])


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mel", torch.from_numpy(mel_basis().astype(np.float32)))
        self.register_buffer("window", torch.hann_window(NFFT, dtype=self.mel.dtype))
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((4, 4)))
        self.out = nn.Linear(32 * 16, WORDS)

    def forward(self, wav):
        spec = torch.stft(wav, NFFT, HOP, window=self.window, return_complex=True).abs().square()
        feats = torch.log(self.mel @ spec + 1e-6)
        feats = (feats - feats.mean((1, 2), keepdim=True)) / feats.std((1, 2), keepdim=True)
        return self.out(self.conv(feats.unsqueeze(1)).flatten(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as root:
        record(root, 400)
        loader = DataLoader(Clips(root), batch_size=16, shuffle=True, drop_last=True)
        net = KeywordNet()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        crit = nn.CrossEntropyLoss(label_smoothing=0.05)
        for k, (wav, y) in enumerate(loader):
            crit(net(wav), y).backward()
            if k == 2:
                break
        steps = 0
        t0 = time.perf_counter()
        for epoch in range(6):
            good = 0
            for wav, y in loader:
                logits = net(wav)
                loss = crit(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += (logits.argmax(1) == y).sum().item()
                steps += 1
            print(f"epoch {epoch} loss {loss.item():.3f} acc {good / (len(loader) * 16):.3f}")
        took = time.perf_counter() - t0
    print(f"loop_s={took:.3f} steps={steps}")


if __name__ == "__main__":
    main()
