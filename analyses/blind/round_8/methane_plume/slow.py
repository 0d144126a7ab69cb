"""Methane plume rate regression from multi-band satellite chips. Own Trainer class."""
import dataclasses
import logging
import os
import shutil
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("plume")


@dataclasses.dataclass
class Config:
    scenes: int = 2400
    val_scenes: int = 96
    size: int = 56
    bands: int = 4
    width: int = 24
    batch: int = 24
    steps: int = 120
    eval_every: int = 15
    lr: float = 1e-3
    seed: int = 21
    out_dir: str = ""


def make_scenes(cfg, n, gen):
    """Gaussian plumes in a random wind over a textured ground."""
    s = cfg.size
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, s), torch.linspace(-1, 1, s), indexing="ij")
    rate = torch.rand(n, generator=gen) * 2 + 0.2
    angle = torch.rand(n, generator=gen) * 6.283
    chips = torch.randn(n, cfg.bands, s, s, generator=gen) * 0.4
    for i in range(n):
        along = xx * angle[i].cos() + yy * angle[i].sin()
        across = -xx * angle[i].sin() + yy * angle[i].cos()
        width = 0.05 + 0.2 * along.clamp_min(0)
        plume = rate[i] * torch.exp(-0.5 * (across / width) ** 2) * (along > 0) * 0.1 / width
        chips[i, -1] -= plume
        chips[i, -2] -= 0.3 * plume
    return chips, rate


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.a = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.na = nn.GroupNorm(4, c_out)
        self.b = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.nb = nn.GroupNorm(4, c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(h)) + self.skip(x))


class PlumeNet(nn.Module):
    def __init__(self, bands, w):
        super().__init__()
        self.net = nn.Sequential(
            ResBlock(bands, w, 2), ResBlock(w, 2 * w, 1), ResBlock(2 * w, 4 * w, 2), ResBlock(4 * w, 4 * w, 2))
        self.head = nn.Linear(4 * w, 1)

    def forward(self, x):
        return self.head(self.net(x).mean((2, 3))).squeeze(1)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        gen = torch.Generator().manual_seed(cfg.seed)
        self.train_x, self.train_y = make_scenes(cfg, cfg.scenes, gen)
        self.val_x, self.val_y = make_scenes(cfg, cfg.val_scenes, gen)
        self.model = PlumeNet(cfg.bands, cfg.width)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=1e-4, fused=True)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=cfg.steps)
        self.step = 0
        self.best = float("inf")
        self.history = []

    def batches(self):
        while True:
            order = torch.randperm(self.cfg.scenes)
            for idx in order.split(self.cfg.batch):
                if len(idx) == self.cfg.batch:
                    yield self.train_x[idx], self.train_y[idx]

    def train_step(self, x, y):
        self.model.train()
        loss = F.smooth_l1_loss(self.model(x), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return F.l1_loss(self.model(self.val_x), self.val_y).item()

    def save(self, name):
        path = os.path.join(self.cfg.out_dir, name)
        torch.save(self, path + ".part")
        os.replace(path + ".part", path)

    def fit(self):
        stream = self.batches()
        x, y = next(stream)
        F.smooth_l1_loss(self.model(x), y).backward()
        self.opt.zero_grad(set_to_none=True)
        running = torch.zeros(())
        start = time.perf_counter()
        for x, y in stream:
            running += self.train_step(x, y)
            if self.step % self.cfg.eval_every == 0:
                mae = self.evaluate()
                self.history.append((self.step, running.item() / self.cfg.eval_every, mae))
                running.zero_()
                log.info("step %d train %.4f val mae %.4f", *self.history[-1])
                self.save("last.pt")
                if mae < self.best:
                    self.best = mae
                    shutil.copyfile(os.path.join(self.cfg.out_dir, "last.pt"),
                                    os.path.join(self.cfg.out_dir, "best.pt"))
            if self.step >= self.cfg.steps:
                break
        return time.perf_counter() - start


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory() as tmp:
        trainer = Trainer(Config(out_dir=tmp))
        seconds = trainer.fit()
    print("loop_s=%.3f steps=%d" % (seconds, trainer.step))


if __name__ == "__main__":
    main()
