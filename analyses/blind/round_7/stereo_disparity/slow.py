"""Stereo disparity by a small cost-volume network (GC-Net style) on random-dot scenes."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

config = {
    "seed": 2,
    "height": 64,
    "width": 128,
    "max_disp": 48,          # pixels at full size
    "features": 12,
    "batch": 2,
    "train_scenes": 192,
    "test_scenes": 8,
    "epochs": 2,
    "lr": 1e-3,
    "log_every": 24,
}


def render_scenes(n, cfg, generator):
    """Textured background with a few fronto-parallel planes; the right view is the shifted left one."""
    h, w, max_disp = cfg["height"], cfg["width"], cfg["max_disp"]
    texture = torch.rand(n, 3, h, w + max_disp, generator=generator)
    texture = F.avg_pool2d(F.pad(texture, (1, 1, 1, 1), mode="reflect"), 3, stride=1)
    disp = torch.full((n, 1, h, w), 4.0)
    for i in range(n):
        for _ in range(4):
            top = int(torch.randint(0, h - 16, (1,), generator=generator))
            left = int(torch.randint(0, w - 24, (1,), generator=generator))
            ph = int(torch.randint(12, 32, (1,), generator=generator))
            pw = int(torch.randint(16, 48, (1,), generator=generator))
            d = float(torch.randint(6, max_disp - 8, (1,), generator=generator))
            region = disp[i, 0, top:top + ph, left:left + pw]
            region.copy_(region.clamp_min(d))
    left = texture[..., :w].contiguous()
    columns = torch.arange(w).view(1, 1, 1, w) + disp.round().long()
    right = texture.gather(3, columns.expand(n, 3, h, w))
    # `right` sees at column x what the left view shows at x + d
    return right, left, disp


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.b = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return F.relu(x + self.nb(self.b(y)))


class FeatureNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(ResBlock(c), ResBlock(c))
        self.out = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.out(self.blocks(F.relu(self.stem(x))))


class CostVolume(nn.Module):
    """Reference features next to the target features shifted by each candidate disparity."""

    def __init__(self, levels):
        super().__init__()
        self.levels = levels

    def forward(self, ref, tgt):
        volume = torch.cat([ref, tgt], dim=1).unsqueeze(2)
        for d in range(1, self.levels):
            shifted = F.pad(tgt[..., d:], (0, d))
            pair = torch.cat([ref, shifted], dim=1).unsqueeze(2)
            volume = torch.cat([volume, pair], dim=2)
        return volume


class Regulariser(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.reduce = nn.Conv3d(2 * c, 8, 1)
        self.down = nn.Conv3d(8, 16, 3, stride=2, padding=1)
        self.mid = nn.Conv3d(16, 16, 3, padding=1)
        self.up = nn.Conv3d(16, 1, 1)

    def forward(self, v):
        x = F.relu(self.reduce(v))
        y = F.relu(self.mid(F.relu(self.down(x))))
        y = F.interpolate(self.up(y), size=x.shape[2:], mode="trilinear", align_corners=False)
        return (y - x.mean(dim=1, keepdim=True)).squeeze(1)


class StereoNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        levels = cfg["max_disp"] // 2
        self.features = FeatureNet(cfg["features"])
        self.volume = CostVolume(levels)
        self.regulariser = Regulariser(cfg["features"])
        self.register_buffer("levels", 2.0 * torch.arange(levels).view(1, -1, 1, 1).float())

    def forward(self, ref, tgt):
        ref_f, tgt_f = self.features(torch.cat([ref, tgt])).chunk(2)
        cost = self.regulariser(self.volume(ref_f, tgt_f))
        disp = (cost.softmax(dim=1) * self.levels).sum(dim=1, keepdim=True)
        return F.interpolate(disp, scale_factor=2, mode="bilinear", align_corners=False)


@torch.no_grad()
def end_point_error(model, ref, tgt, disp):
    model.eval()
    errors = [(model(r, t) - d).abs().mean() for r, t, d in zip(ref.split(4), tgt.split(4), disp.split(4))]
    model.train()
    return torch.stack(errors).mean().item()


def train(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg["seed"])
    g = torch.Generator().manual_seed(cfg["seed"])
    ref, tgt, disp = render_scenes(cfg["train_scenes"], cfg, g)
    test = render_scenes(cfg["test_scenes"], cfg, g)
    model = StereoNet(cfg)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=cfg["lr"])
    per_epoch = math.ceil(cfg["train_scenes"] / cfg["batch"])

    F.smooth_l1_loss(model(ref[:2], tgt[:2]), disp[:2]).backward()
    step, started = 0, time.perf_counter()
    for epoch in range(cfg["epochs"]):
        for picks in torch.randperm(len(ref), generator=g).split(cfg["batch"]):
            loss = F.smooth_l1_loss(model(ref[picks], tgt[picks]), disp[picks])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % cfg["log_every"] == 0:
                print("step %d/%d loss %.3f" % (step, per_epoch * cfg["epochs"], loss.item()))
        print("epoch %d end point error %.3f px" % (epoch, end_point_error(model, *test)))
    return time.perf_counter() - started, step


if __name__ == "__main__":
    seconds, steps = train(config)
    print("loop_s=%.3f steps=%d" % (seconds, steps))
