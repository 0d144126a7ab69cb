"""Point cloud completion: a partial scan of an object in, the whole object out (PCN-like)."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def sample_objects(n, points, gen):
    """Unions of an ellipsoid, a box and a tube with random sizes and places."""
    third = points // 3
    sizes = 0.2 + 0.5 * torch.rand(n, 3, 1, 3, generator=gen)
    shift = 0.4 * torch.randn(n, 3, 1, 3, generator=gen)
    ball = torch.randn(n, third, 3, generator=gen)
    ball = ball / ball.norm(dim=-1, keepdim=True)
    box = torch.rand(n, third, 3, generator=gen) * 2 - 1
    box = box / box.abs().amax(-1, keepdim=True)
    rest = points - 2 * third
    angle = torch.rand(n, rest, generator=gen) * 6.2832
    height = torch.rand(n, rest, generator=gen) * 2 - 1
    tube = torch.stack([angle.cos(), angle.sin(), height], -1)
    parts = [part * sizes[:, i] + shift[:, i] for i, part in enumerate((ball, box, tube))]
    cloud = torch.cat(parts, 1)
    cloud = cloud - cloud.mean(1, keepdim=True)
    return cloud / cloud.norm(dim=-1).amax(1)[:, None, None]


class Scans(Dataset):
    def __init__(self, n, points, visible, seed):
        gen = torch.Generator().manual_seed(seed)
        self.full = sample_objects(n, points, gen)
        view = torch.randn(n, 3, 1, generator=gen)
        depth = torch.bmm(self.full, view).squeeze(-1)
        nearest = depth.topk(visible, dim=1).indices
        self.partial = self.full.gather(1, nearest[..., None].expand(-1, -1, 3)).contiguous()

    def __len__(self):
        return len(self.full)

    def __getitem__(self, i):
        return self.partial[i], self.full[i]


class Encoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 96), nn.ReLU(), nn.Linear(96, 192))
        self.mixed = nn.Sequential(nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, code))

    def forward(self, x):
        h = self.local(x)
        pooled = h.amax(1, keepdim=True).expand_as(h)
        return self.mixed(torch.cat([h, pooled], -1)).amax(1)


class Completion(nn.Module):
    def __init__(self, code, points):
        super().__init__()
        self.encoder = Encoder(code)
        self.decoder = nn.Sequential(
            nn.Linear(code, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
            nn.Linear(512, points * 3), nn.Tanh())
        self.points = points

    def forward(self, partial):
        return self.decoder(self.encoder(partial)).view(-1, self.points, 3)


def chamfer(a, b):
    diff = a.unsqueeze(2) - b.unsqueeze(1)
    dist = (diff ** 2).sum(-1)
    return dist.min(2).values.mean(1) + dist.min(1).values.mean(1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for partial, full in loader:
        total += chamfer(model(partial), full).sum().item()
        count += len(full)
    model.train()
    return total / count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--objects", type=int, default=480)
    ap.add_argument("--points", type=int, default=512)
    ap.add_argument("--visible", type=int, default=384)
    ap.add_argument("--code", type=int, default=384)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=5e-4)
    args = ap.parse_args()
    torch.manual_seed(11)

    train = Scans(args.objects, args.points, args.visible, seed=1)
    test = Scans(48, args.points, args.visible, seed=2)
    loader = DataLoader(train, args.batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(test, args.batch)
    model = Completion(args.code, args.points)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.8)

    steps = 0
    t0 = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for partial, full in loader:
            loss = chamfer(model(partial), full).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            steps += 1
        sched.step()
        print(f"epoch {epoch}: train {total / len(loader):.4f}  test {evaluate(model, test_loader):.4f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")


if __name__ == "__main__":
    main()
