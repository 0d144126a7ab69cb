"""Metric learning on synthetic faces: identity embeddings with batch-hard triplets."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

IDS, PER_ID, P, K = 60, 12, 10, 4


def sketch(ident, rng):
    g = np.random.default_rng(ident)
    yy, xx = np.mgrid[0:40, 0:40]
    img = 0.3 * (np.hypot((yy - 20) / g.uniform(14, 18), (xx - 20) / g.uniform(10, 14)) < 1)
    ex, ey = g.uniform(5, 9), g.uniform(11, 17)
    for s in (-1, 1):
        img = img + g.uniform(0.3, 0.7) * (np.hypot(yy - ey, xx - 20 - s * ex) < g.uniform(1.5, 3))
    img = img + 0.5 * ((abs(yy - g.uniform(26, 32)) < 1.5) & (abs(xx - 20) < g.uniform(3, 9)))
    img = np.roll(img, rng.integers(-2, 3, size=2), (0, 1))
    return (img + rng.normal(0, 0.08, size=img.shape)).astype(np.float32)


def save_gallery(root):
    rng = np.random.default_rng(0)
    for i in range(IDS):
        np.save(os.path.join(root, f"id_{i:03d}.npy"), np.stack([sketch(i, rng) for _ in range(PER_ID)]))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
        self.fc = nn.Linear(64 * 9, 64)

    def forward(self, x):
        return F.normalize(self.fc(self.features(x).flatten(1)), dim=1)


class PKSampler:
    def __init__(self, gallery, seed):
        self.gallery = gallery
        self.rng = np.random.default_rng(seed)

    def draw(self):
        ids = self.rng.choice(IDS, P, replace=False)
        x = np.stack([self.gallery[i][j] for i in ids for j in self.rng.choice(PER_ID - 2, K, replace=False)])
        return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(ids.repeat(K))


def same_mask(y):
    return y[:, None] == y[None, :]


def batch_hard(z, y, margin=0.2):
    d = torch.cdist(z, z)
    same = same_mask(y)
    pos = (d * same).amax(1)
    neg = (d + same * 10.0).amin(1)
    return F.relu(pos - neg + margin).mean()


@torch.no_grad()
def recall_at_1(net, gallery):
    ref = torch.from_numpy(gallery[:, :4].reshape(-1, 1, 40, 40))
    qry = torch.from_numpy(gallery[:, -2:].reshape(-1, 1, 40, 40))
    near = torch.cdist(net(qry), net(ref)).argmin(1) // 4
    return (near == torch.arange(len(gallery)).repeat_interleave(2)).float().mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        save_gallery(root)
        gallery = np.stack([np.load(os.path.join(root, f)) for f in sorted(os.listdir(root))])
    net = Embedder()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    sampler = PKSampler(gallery, 1)

    def step():
        x, y = sampler.draw()
        loss = batch_hard(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        step()
    t0 = time.perf_counter()
    for it in range(120):
        loss = step()
        if it % 40 == 39:
            print(f"step {it + 1} loss {loss.item():.4f} recall@1 {recall_at_1(net, gallery):.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps=120")


if __name__ == "__main__":
    main()
