import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


def write_images(root, count, size):
    rng = np.random.default_rng(0)
    for k in range(count):
        coarse = rng.random((10, 10, 3))
        img = ndimage.zoom(coarse, (size / 10, size / 10, 1), order=1)
        img = np.clip(img * 255 + rng.normal(0, 8, img.shape), 0, 255).astype(np.uint8)
        np.savez(os.path.join(root, f"leaf_{k:04d}.npz"), img=img)


class TwoViews:
    def __init__(self, crop, seed=0):
        self.crop = crop
        self.rng = np.random.default_rng(seed)

    def blur(self, img):
        if self.rng.random() < 0.5:
            sigma = self.rng.uniform(0.5, 2.0)
            img = ndimage.gaussian_filter(img, sigma=(sigma, sigma, 0))
        return img

    def jitter(self, img):
        gain = self.rng.uniform(0.7, 1.3, 3).astype(np.float32)
        shift = np.float32(self.rng.uniform(-0.1, 0.1))
        img = img * gain + shift
        if self.rng.random() < 0.2:
            img = np.repeat(img.mean(2, keepdims=True), 3, axis=2)
        return img.clip(0, 1)

    def random_crop(self, img):
        h, w, _ = img.shape
        top = self.rng.integers(0, h - self.crop + 1)
        left = self.rng.integers(0, w - self.crop + 1)
        img = img[top : top + self.crop, left : left + self.crop]
        return img[:, ::-1] if self.rng.random() < 0.5 else img

    def view(self, img):
        img = self.blur(img)
        img = self.jitter(img)
        img = self.random_crop(img)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))

    def __call__(self, img):
        img = img.astype(np.float32) / 255
        return self.view(img), self.view(img)


class Leaves(Dataset):
    def __init__(self, root, transform):
        self.paths = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with np.load(self.paths[i]) as z:
            return self.transform(z["img"])


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class Encoder(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.body = nn.Sequential(block(3, width), block(width, 2 * width), block(2 * width, 4 * width),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.proj = nn.Sequential(nn.Linear(4 * width, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


def nt_xent(a, b, temperature):
    z = torch.cat([a, b])
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    n = len(a)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--crop", type=int, default=64)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        write_images(root, 128, 224)
        loader = DataLoader(Leaves(root, TwoViews(args.crop)), args.batch, shuffle=True, drop_last=True)
        model = Encoder()
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        model(torch.zeros(4, 3, args.crop, args.crop)).sum().backward()
        steps, start = 0, time.perf_counter()
        for epoch in range(args.epochs):
            for a, b in loader:
                loss = nt_xent(*model(torch.cat([a, b])).chunk(2), 0.2)
                opt.zero_grad()
                loss.backward()
                opt.step()
                steps += 1
            print(f"epoch {epoch} loss {loss.item():.3f}")
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
