"""Complete partial scans of simple objects with a PointNet encoder and an MLP decoder."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Options:
    objects: int = 480
    test_objects: int = 48
    points: int = 512
    visible: int = 384
    code: int = 384
    batch: int = 8
    epochs: int = 2
    lr: float = 5e-4


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def objects(count, points, g):
    third = points // 3
    last = points - 2 * third
    scale = 0.2 + 0.5 * torch.rand(count, 3, 1, 3, generator=g)
    move = 0.4 * torch.randn(count, 3, 1, 3, generator=g)
    sphere = unit(torch.randn(count, third, 3, generator=g))
    cube = torch.rand(count, third, 3, generator=g) * 2 - 1
    cube = cube / cube.abs().amax(-1, keepdim=True)
    phi = torch.rand(count, last, generator=g) * 6.2832
    z = torch.rand(count, last, generator=g) * 2 - 1
    tube = torch.stack([phi.cos(), phi.sin(), z], -1)
    pts = torch.cat([s * scale[:, i] + move[:, i] for i, s in enumerate([sphere, cube, tube])], 1)
    pts = pts - pts.mean(1, keepdim=True)
    return pts / pts.norm(dim=-1).amax(1)[:, None, None]


def scans(count, opts, seed):
    g = torch.Generator().manual_seed(seed)
    whole = objects(count, opts.points, g)
    direction = torch.randn(count, 3, 1, generator=g)
    seen = torch.bmm(whole, direction).squeeze(-1).topk(opts.visible, dim=1).indices
    part = torch.take_along_dim(whole, seen[..., None], 1).contiguous()
    return TensorDataset(part, whole)


class CompletionNet(nn.Module):
    def __init__(self, opts):
        super().__init__()
        self.point_mlp = nn.Sequential(nn.Linear(3, 96), nn.ReLU(), nn.Linear(96, 192))
        self.cloud_mlp = nn.Sequential(nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, opts.code))
        self.head = nn.Sequential(
            nn.Linear(opts.code, 512), nn.ReLU(),
            nn.Linear(512, 512), nn.ReLU(),
            nn.Linear(512, opts.points * 3), nn.Tanh(), nn.Unflatten(1, (opts.points, 3)))

    def forward(self, part):
        h = self.point_mlp(part)
        pooled = h.amax(1, keepdim=True).expand_as(h)
        code = self.cloud_mlp(torch.cat([h, pooled], -1)).amax(1)
        return self.head(code)


def chamfer(a, b):
    """Symmetric squared Chamfer distance of each pair in the batch."""
    with torch.no_grad():
        sq = torch.baddbmm(b.square().sum(-1)[:, None], a, b.transpose(1, 2), alpha=-2)
        to_b = sq.argmin(2, keepdim=True)
        sq += a.square().sum(-1)[..., None]
        to_a = sq.argmin(1)[..., None]
    near_b = torch.take_along_dim(b, to_b, 1)
    near_a = torch.take_along_dim(a, to_a, 1)
    return (a - near_b).square().sum(-1).mean(1) + (b - near_a).square().sum(-1).mean(1)


def test_error(net, loader):
    net.eval()
    with torch.no_grad():
        errors = torch.cat([chamfer(net(part), whole) for part, whole in loader])
    net.train()
    return errors.mean().item()


def train(opts):
    torch.manual_seed(11)
    loader = DataLoader(scans(opts.objects, opts, 1), opts.batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(scans(opts.test_objects, opts, 2), opts.batch)
    net = CompletionNet(opts)
    optimizer = torch.optim.Adam(net.parameters(), lr=opts.lr)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.8)

    begin, steps = time.perf_counter(), 0
    for epoch in range(opts.epochs):
        losses = []
        for part, whole in loader:
            loss = chamfer(net(part), whole).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        steps += len(losses)
        decay.step()
        print(f"epoch {epoch}: train {sum(losses) / len(losses):.4f}  "
              f"test {test_error(net, test_loader):.4f}")
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={steps}")


if __name__ == "__main__":
    train(Options())
