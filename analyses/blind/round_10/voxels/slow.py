"""Fill the holes of scanned voxel objects with a small 3-D convolutional autoencoder."""
import argparse
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 24


def make_objects(n, gen):
    """Occupancy grids of a ball and a box at random places."""
    axis = torch.linspace(-1, 1, SIDE)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    centre = (torch.rand(n, 2, 3, generator=gen) - 0.5) * 0.9
    size = 0.25 + 0.35 * torch.rand(n, 2, 3, generator=gen)
    out = torch.zeros(n, SIDE, SIDE, SIDE, dtype=torch.bool)
    for i in range(n):
        ball = (((grid - centre[i, 0]) / size[i, 0]) ** 2).sum(-1) < 1
        box = ((grid - centre[i, 1]).abs() < size[i, 1]).all(-1)
        out[i] = ball | box
    return out


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv = nn.Conv3d(c_in, c_out, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(4, c_out)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Filler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down1 = Block(1, width, 2)
        self.down2 = Block(width, 2 * width, 2)
        self.mid = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width))
        self.up2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, 2)
        self.mix2 = Block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.mix1 = Block(2 * width, width)
        self.out = nn.ConvTranspose3d(width, 1, 2, 2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(a)
        h = self.up2(self.mid(b))
        h = self.up1(self.mix2(torch.cat([h, b], 1)))
        return self.out(self.mix1(torch.cat([h, a], 1)))


PLANES = [(0, 1), (0, 2), (1, 2)]


def augment(batch, rng):
    """Every object is turned by its own quarter turns, perhaps mirrored, and gets its own hole."""
    whole, scanned = [], []
    for vox in batch:
        vox = torch.rot90(vox, rng.randrange(4), rng.choice(PLANES))
        if rng.random() < 0.5:
            vox = vox.flip(0)
        cut = vox.clone()
        edge = rng.randrange(8, 13)
        corner = [rng.randrange(4, SIDE - edge - 3) for _ in range(3)]
        x, y, z = corner
        cut[x:x + edge, y:y + edge, z:z + edge] = False
        whole.append(vox)
        scanned.append(cut)
    return torch.stack(scanned).unsqueeze(1).float(), torch.stack(whole).unsqueeze(1).float()


def iou(logits, whole):
    pred, true = logits > 0, whole > 0.5
    inter = (pred & true).flatten(1).sum(1)
    union = (pred | true).flatten(1).sum(1)
    return (inter / union.clamp_min(1)).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--objects", type=int, default=960)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--width", type=int, default=20)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--report", type=int, default=20)
    ap.add_argument("--seed", type=int, default=13)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    gen = torch.Generator().manual_seed(args.seed)
    train, test = make_objects(args.objects, gen), make_objects(64, gen)
    test_in, test_out = augment(test, random.Random(0))
    model = Filler(args.width)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    weight = torch.tensor(2.0)

    t0 = time.perf_counter()
    step, total = 0, 0.0
    for epoch in range(args.epochs):
        order = torch.randperm(len(train))
        for i in range(0, len(train) - args.batch + 1, args.batch):
            scanned, whole = augment(train[order[i:i + args.batch]], rng)
            loss = F.binary_cross_entropy_with_logits(model(scanned), whole, pos_weight=weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            total += loss.item()
            if step % args.report == 0:
                print(f"step {step:4d}  loss {total / args.report:.4f}")
                total = 0.0
        model.eval()
        with torch.no_grad():
            score = iou(model(test_in), test_out)
        model.train()
        print(f"epoch {epoch}: iou {score:.4f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={step}")


if __name__ == "__main__":
    main()
