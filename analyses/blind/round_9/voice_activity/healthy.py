"""Voice activity detection for a far-field microphone (8 kHz).

Clean clips are made far-field on the fly: a random room response, then street noise at a random SNR.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.signal import fftconvolve
from torch.utils.data import DataLoader, Dataset

SR = 8000
HOP = 80
N_FFT = 256


def synth_clips(n, seconds, rng):
    """Bursts of harmonic 'speech' with pauses between them, and a frame label for each hop."""
    length = int(seconds * SR)
    t = np.arange(length, dtype=np.float32) / SR
    clips = np.zeros((n, length), np.float32)
    labels = np.zeros((n, length // HOP), np.float32)
    for i in range(n):
        pos = int(rng.integers(0, SR // 4))
        while pos < length - SR // 8:
            dur = int(rng.integers(SR // 8, SR // 2))
            end = min(length, pos + dur)
            f0 = rng.uniform(90, 240)
            seg = t[pos:end]
            env = np.hanning(end - pos).astype(np.float32)
            voice = sum(np.sin(2 * np.pi * f0 * k * seg) / k for k in range(1, 7))
            clips[i, pos:end] += 0.3 * env * voice
            labels[i, pos // HOP:end // HOP] = 1.0
            pos = end + int(rng.integers(SR // 10, SR // 2))
    return clips, labels


def synth_rooms(n, taps, rng):
    decay = np.exp(-np.arange(taps) / (0.15 * SR))
    rooms = rng.standard_normal((n, taps)) * decay * 0.1
    rooms[:, 0] = 1.0
    return rooms.astype(np.float32)


class ReverbClips(Dataset):
    def __init__(self, clips, labels, rooms, noise, seed):
        self.clips, self.labels = clips, labels
        self.rooms, self.noise = rooms, noise
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        clean = self.clips[i]
        room = self.rooms[self.rng.integers(len(self.rooms))]
        wet = fftconvolve(clean, room)[: len(clean)]
        start = self.rng.integers(len(self.noise) - len(wet))
        noise = self.noise[start:start + len(wet)]
        snr = self.rng.uniform(0, 20)
        gain = np.sqrt(np.mean(wet ** 2) / (np.mean(noise ** 2) * 10 ** (snr / 10)) + 1e-12)
        mix = (wet + gain * noise).astype(np.float32)
        return torch.from_numpy(mix), torch.from_numpy(self.labels[i])


class SpeechDetector(nn.Module):
    def __init__(self, channels=48, hidden=64):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.norm = nn.BatchNorm1d(N_FFT // 2 + 1)
        self.front = nn.Sequential(
            nn.Conv1d(N_FFT // 2 + 1, channels, 5, padding=2), nn.ReLU(),
            nn.Conv1d(channels, channels, 5, padding=2), nn.ReLU(),
        )
        self.rnn = nn.GRU(channels, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 1)

    def forward(self, audio):
        spec = torch.stft(audio, N_FFT, HOP, window=self.window, return_complex=True)
        feats = torch.log(spec.abs().pow(2) + 1e-5)[..., :-1]
        h = self.front(self.norm(feats)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.head(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=152)
    ap.add_argument("--seconds", type=float, default=2.0)
    ap.add_argument("--rir-taps", type=int, default=8000)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    clips, labels = synth_clips(args.clips, args.seconds, rng)
    rooms = synth_rooms(40, args.rir_taps, rng)
    noise = np.cumsum(rng.standard_normal(SR * 60))
    noise = (noise - np.convolve(noise, np.ones(64) / 64, "same")).astype(np.float32)

    data = ReverbClips(clips, labels, rooms, noise, args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = SpeechDetector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    steps = 0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total, right, frames = 0.0, 0, 0
        for audio, target in loader:
            logits = model(audio)
            loss = F.binary_cross_entropy_with_logits(logits, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            steps += 1
            total += loss.item()
            right += ((logits > 0) == (target > 0.5)).sum().item()
            frames += target.numel()
        print(f"epoch {epoch} bce {total / len(loader):.4f} frame acc {right / frames:.3f}", flush=True)
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={steps}")


if __name__ == "__main__":
    main()
