"""BYOL with nearest-neighbour targets (NNCLR's support set in a BYOL loss) on texture patches."""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

cfg_defaults = dict(steps=100, batch=48, support=65536, dim=128, lr=0.02, tau=0.99, classes=8, log_every=25, seed=2)


def textures(n, classes, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    ang = y.float() * math.pi / classes
    freq = 0.4 + 0.1 * (y % 3).float()
    ph = torch.rand(n, generator=g) * 6.28
    arg = freq[:, None, None] * (ang.cos()[:, None, None] * xx + ang.sin()[:, None, None] * yy) + ph[:, None, None]
    x = arg.sin()[:, None] * (0.5 + torch.rand(n, 3, 1, 1, generator=g))
    return x + 0.3 * torch.randn(n, 3, 32, 32, generator=g), y


def augment(x):
    """One crop offset and one flip per view, one gain and one shift per image."""
    top, left = torch.randint(0, 5, (2,)).tolist()
    x = x[:, :, top:top + 28, left:left + 28]
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    gain = 0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)
    return x * gain + 0.1 * torch.randn(len(x), 3, 1, 1)


def conv(i, o, s):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.features = nn.Sequential(conv(3, 24, 1), conv(24, 48, 2), conv(48, 96, 2), conv(96, 96, 2))
        self.project = nn.Sequential(nn.Linear(96, 256), nn.BatchNorm1d(256), nn.ReLU(inplace=True), nn.Linear(256, dim))

    def forward(self, x):
        return self.project(self.features(x).mean((2, 3)))


class SupportSet(nn.Module):
    """The newest `size` target embeddings, to look up the nearest one."""

    def __init__(self, size, dim):
        super().__init__()
        self.size = size
        self.register_buffer("bank", F.normalize(torch.randn(size, dim), dim=1))

    @torch.no_grad()
    def push(self, z):
        self.bank = torch.cat([z, self.bank])[:self.size]

    @torch.no_grad()
    def nearest(self, z):
        return self.bank[(z @ self.bank.T).argmax(1)]


class NNBYOL(nn.Module):
    def __init__(self, dim, support, tau):
        super().__init__()
        self.online = Encoder(dim)
        self.predict = nn.Sequential(nn.Linear(dim, 256), nn.BatchNorm1d(256), nn.ReLU(inplace=True), nn.Linear(256, dim))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.support = SupportSet(support, dim)
        self.tau = tau

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), 1 - self.tau)

    def forward(self, a, b):
        pa, pb = self.predict(self.online(torch.cat([a, b]))).chunk(2)
        with torch.no_grad():
            z = F.normalize(self.target(torch.cat([a, b])), dim=1)
            na, nb = self.support.nearest(z).chunk(2)
            self.support.push(z)
        return 2 - F.cosine_similarity(pa, nb).mean() - F.cosine_similarity(pb, na).mean()


@torch.no_grad()
def knn_score(model, x, y, n_ref=384, k=5):
    model.eval()
    f = F.normalize(model.online.features(x[:, :, 2:30, 2:30]).mean((2, 3)), dim=1)
    model.train()
    near = (f[n_ref:] @ f[:n_ref].T).topk(k, 1).indices
    return (y[:n_ref][near].mode(1).values == y[n_ref:]).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    for k, v in cfg_defaults.items():
        parser.add_argument(f"--{k.replace('_', '-')}", type=type(v), default=v)
    cfg = parser.parse_args()
    torch.manual_seed(cfg.seed)
    images, _ = textures(2048, cfg.classes, 1)
    probe_x, probe_y = textures(512, cfg.classes, 2)
    model = NNBYOL(cfg.dim, cfg.support, cfg.tau)
    learn = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(learn, lr=cfg.lr, momentum=0.9, weight_decay=1e-4, foreach=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps)
    window = []

    t0 = time.perf_counter()
    for step in range(cfg.steps):
        x = images[torch.randint(len(images), (cfg.batch,))]
        loss = model(augment(x), augment(x))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        model.follow()
        window.append(loss.detach())
        if (step + 1) % cfg.log_every == 0:
            mean = torch.stack(window).mean().item()
            window.clear()
            print(f"{step + 1:5d}  loss {mean:.4f}  knn {knn_score(model, probe_x, probe_y):.3f}", flush=True)
    dt = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (dt, cfg.steps))


if __name__ == "__main__":
    main()
