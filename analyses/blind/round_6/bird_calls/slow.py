"""Bird call detector: multi-label CNN on log-spectrogram crops of long field recordings."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("birds")
SR = 8000


def synth_recordings(n, seconds, n_species, seed):
    """int16 recordings with chirps; returns audio, and a (n, seconds, species) presence grid."""
    rng = np.random.default_rng(seed)
    audio = np.zeros((n, seconds * SR), dtype=np.int16)
    present = np.zeros((n, seconds, n_species), dtype=bool)
    t = np.arange(SR) / SR
    calls = [np.sin(2 * np.pi * (600 + 180 * k) * t + 30 * np.sin(2 * np.pi * (3 + k) * t)) * np.hanning(SR)
             for k in range(n_species)]
    for i in range(n):
        wave = rng.normal(0, 0.1, size=seconds * SR)
        for _ in range(seconds // 2):
            k, s = rng.integers(n_species), rng.integers(seconds)
            wave[s * SR:(s + 1) * SR] += rng.uniform(0.2, 0.6) * calls[k]
            present[i, s, k] = True
        audio[i] = np.clip(wave, -1, 1) * 32767
    return audio, present


class CropDataset(Dataset):
    def __init__(self, audio, present, n_crops, crop_s=3, n_fft=256, hop=100, train=True):
        self.audio, self.present = audio, present
        self.n_crops, self.crop_s, self.train = n_crops, crop_s, train
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        self.seconds = audio.shape[1] // SR

    def __len__(self):
        return self.n_crops

    def __getitem__(self, i):
        rng = np.random.default_rng(None if self.train else i)
        rec = rng.integers(len(self.audio))
        s = int(rng.integers(self.seconds - self.crop_s))
        x = self.audio[rec, s * SR:(s + self.crop_s) * SR].astype(np.float32) / 32768
        if self.train:
            x *= rng.uniform(0.6, 1.4)
        spec = torch.stft(torch.from_numpy(x), self.n_fft, self.hop, window=self.window, return_complex=True)
        spec = spec[:128].abs().clamp_min_(1e-5).log_()
        y = self.present[rec, s:s + self.crop_s].any(0)
        return spec[None], torch.from_numpy(y.astype(np.float32))


class CallNet(nn.Module):
    """Patchify the spectrogram, mix with a GRU over time, attention pooling."""

    def __init__(self, n_species, bins=128, patch=4, dim=224):
        super().__init__()
        self.patch = patch
        self.inp = nn.Sequential(nn.Linear(bins * patch, dim), nn.GELU(), nn.Linear(dim, dim), nn.LayerNorm(dim))
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.att = nn.Linear(2 * dim, 1)
        self.cls = nn.Linear(2 * dim, n_species)

    def forward(self, x):
        b, _, f, t = x.shape
        t = t // self.patch * self.patch
        x = x[:, 0, :, :t].transpose(1, 2).reshape(b, t // self.patch, self.patch * f)
        h, _ = self.rnn(self.inp(x))
        w = self.att(h).softmax(1)
        return self.cls((w * h).sum(1))


@torch.no_grad()
def validate(model, batches):
    model.eval()
    hit = tot = 0.0
    for x, y in batches:
        p = model(x) > 0
        hit += (p == y.bool()).float().sum().item()
        tot += y.numel()
    model.train()
    return hit / tot


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--species", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--crops-per-epoch", type=int, default=704)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--lr", type=float, default=6e-4)
    a = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(11)

    audio, present = synth_recordings(24, 40, a.species, seed=0)
    train_set = CropDataset(audio[:20], present[:20], a.crops_per_epoch)
    val_set = CropDataset(audio[20:], present[20:], 64, train=False)
    val_batches = list(DataLoader(val_set, batch_size=a.batch_size))
    # fork is not safe with the audio decoder we use for the real recordings
    train_loader = DataLoader(train_set, batch_size=a.batch_size, shuffle=True, drop_last=True,
                              num_workers=a.workers, prefetch_factor=4, multiprocessing_context="spawn")

    model = CallNet(a.species)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=1e-2, fused=True)
    crit = nn.BCEWithLogitsLoss()
    x, y = next(iter(train_loader))
    log.info("batch %s -> %s, %d parameters", tuple(x.shape), tuple(model(x).shape),
             sum(p.numel() for p in model.parameters()))
    steps = 0
    t0 = time.perf_counter()
    for epoch in range(a.epochs):
        total = 0.0
        for x, y in train_loader:
            opt.zero_grad(set_to_none=True)
            loss = crit(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            total += loss.item()
            steps += 1
        log.info("epoch %d loss %.4f val acc %.4f", epoch, total / len(train_loader), validate(model, val_batches))
    dt = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (dt, steps))


if __name__ == "__main__":
    main()
