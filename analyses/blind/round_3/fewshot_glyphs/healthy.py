"""First-order MAML on invented glyph alphabets: 5-way, 5-shot, four-block conv net."""
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class GlyphWorld:
    """Every class is a handful of random strokes; samples are jittered renderings."""

    def __init__(self, classes, per_class, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.g = g
        axis = torch.linspace(-1, 1, size)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        bank = []
        for _ in range(classes):
            ends = torch.rand(4, 2, 2, generator=g) * 1.6 - 0.8
            jitter = torch.randn(per_class, 4, 2, 2, generator=g) * 0.07
            a, b = (ends + jitter).unbind(2)
            d = b - a
            px = xx[None, None] - a[..., 0, None, None]
            py = yy[None, None] - a[..., 1, None, None]
            dx, dy = d[..., 0, None, None], d[..., 1, None, None]
            u = ((px * dx + py * dy) / (dx ** 2 + dy ** 2 + 1e-6)).clamp(0, 1)
            r2 = (px - u * dx) ** 2 + (py - u * dy) ** 2
            bank.append(torch.exp(-r2 / 0.006).amax(1, keepdim=True))
        self.images = torch.stack(bank)
        self.images += 0.1 * torch.randn(self.images.shape, generator=g)

    def episode(self, ways, shots, queries):
        cls = torch.randperm(len(self.images), generator=self.g)[:ways]
        pick = torch.rand(ways, self.images.size(1), generator=self.g).argsort(1)[:, : shots + queries]
        x = self.images[cls[:, None], pick]
        y = torch.arange(ways)[:, None]
        return (x[:, :shots].flatten(0, 1), y.expand(-1, shots).flatten(),
                x[:, shots:].flatten(0, 1), y.expand(-1, queries).flatten())


class ConvNet(nn.Module):
    def __init__(self, width, ways):
        super().__init__()
        chans = [1, width, width, width, width]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1),
                          nn.BatchNorm2d(o, track_running_stats=False), nn.ReLU(inplace=True))
            for i, o in zip(chans[:-1], chans[1:]))
        self.head = nn.Linear(width * 4, ways)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i < 3:
                x = F.max_pool2d(x, 2)
        return self.head(F.adaptive_avg_pool2d(x, 2).flatten(1))


class FOMAML:
    def __init__(self, model, inner_lr, inner_steps):
        self.model = model
        self.learner = copy.deepcopy(model)
        self.inner = torch.optim.SGD(self.learner.parameters(), lr=inner_lr, fused=True)
        self.inner_steps = inner_steps

    def adapt(self, x, y):
        learner, inner = self.learner, self.inner
        with torch.no_grad():
            torch._foreach_copy_(list(learner.parameters()), list(self.model.parameters()))
        for _ in range(self.inner_steps):
            loss = F.cross_entropy(learner(x), y)
            inner.zero_grad()
            loss.backward()
            inner.step()
        return learner

    def task_grads(self, xs, ys, xq, yq):
        learner = self.adapt(xs, ys)
        logits = learner(xq)
        loss = F.cross_entropy(logits, yq)
        grads = torch.autograd.grad(loss, list(learner.parameters()))
        acc = (logits.argmax(1) == yq).float().mean()
        return grads, loss.item(), acc.item()

    def evaluate(self, world, episodes, args):
        accs = []
        for _ in range(episodes):
            xs, ys, xq, yq = world.episode(args.ways, args.shots, args.queries)
            learner = self.adapt(xs, ys)
            with torch.no_grad():
                accs.append((learner(xq).argmax(1) == yq).float().mean().item())
        return sum(accs) / len(accs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ways", type=int, default=5)
    p.add_argument("--shots", type=int, default=5)
    p.add_argument("--queries", type=int, default=10)
    p.add_argument("--width", type=int, default=40)
    p.add_argument("--inner-steps", type=int, default=6)
    p.add_argument("--inner-lr", type=float, default=0.1)
    p.add_argument("--meta-lr", type=float, default=2e-3)
    p.add_argument("--tasks", type=int, default=2)
    p.add_argument("--meta-steps", type=int, default=50)
    p.add_argument("--eval-every", type=int, default=25)
    p.add_argument("--seed", type=int, default=2)
    args = p.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train = GlyphWorld(80, 20, 28, args.seed)
    novel = GlyphWorld(20, 20, 28, args.seed + 1)
    model = ConvNet(args.width, args.ways).to(memory_format=torch.channels_last)
    maml = FOMAML(model, args.inner_lr, args.inner_steps)
    meta = torch.optim.Adam(model.parameters(), lr=args.meta_lr, fused=True)

    t0 = time.perf_counter()
    for step in range(1, args.meta_steps + 1):
        total, losses, accs = None, [], []
        for _ in range(args.tasks):
            grads, loss, acc = maml.task_grads(*train.episode(args.ways, args.shots, args.queries))
            total = grads if total is None else torch._foreach_add(total, grads)
            losses.append(loss)
            accs.append(acc)
        for param, g in zip(model.parameters(), total):
            param.grad = g / args.tasks
        meta.step()
        if step % args.eval_every == 0:
            novel_acc = maml.evaluate(novel, 3, args)
            print(f"meta-step {step:3d} query loss {sum(losses) / len(losses):.3f} "
                  f"train acc {sum(accs) / len(accs):.3f} novel acc {novel_acc:.3f}")
    seconds = time.perf_counter() - t0
    print(f"loop_s={seconds:.3f} steps={args.meta_steps}")


if __name__ == "__main__":
    main()
