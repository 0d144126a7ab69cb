"""Continual learning with elastic weight consolidation on a stream of permuted-feature tasks.

    python slow.py --tasks 10 --lam 40
"""
import argparse
import logging
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("ewc")


def build_tasks(n_tasks, n_features, n_classes, n_train, n_test, seed):
    """One clustered problem, seen through a different feature permutation per task."""
    g = torch.Generator().manual_seed(seed)
    proto = torch.randn(n_classes, n_features, generator=g) * 0.35
    tasks = []
    for _ in range(n_tasks):
        perm = torch.randperm(n_features, generator=g)

        def draw(n):
            y = torch.randint(0, n_classes, (n,), generator=g)
            x = proto[y] + torch.randn(n, n_features, generator=g)
            return x[:, perm].contiguous(), y

        tasks.append((draw(n_train), draw(n_test)))
    return tasks


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class EWC:
    """Quadratic pull towards the weights of the tasks learnt so far, weighted by their Fisher information."""

    def __init__(self, model, lam):
        self.model = model
        self.lam = lam
        self.tasks = 0
        self.weight = [torch.zeros_like(p) for p in model.parameters()]
        self.centre = [torch.zeros_like(p) for p in model.parameters()]
        self.rest = torch.zeros(())

    def __len__(self):
        return self.tasks

    def fisher(self, x, y, chunk=64):
        """Diagonal empirical Fisher from small chunks."""
        out = [torch.zeros_like(p) for p in self.model.parameters()]
        pieces = x.split(chunk)
        for xb, yb in zip(pieces, y.split(chunk)):
            loss = F.cross_entropy(self.model(xb), yb)
            for f, g in zip(out, torch.autograd.grad(loss, list(self.model.parameters()))):
                f.addcmul_(g, g, value=chunk / len(pieces))
        return out

    def remember(self, x, y):
        """A sum of parabolas is one parabola: keep its weight, its centre and its height at the centre."""
        for p, f, a, c in zip(self.model.parameters(), self.fisher(x, y), self.weight, self.centre):
            p = p.detach()
            share = f / (a + f).clamp_min(1e-30)
            self.rest += (a * share * (p - c) ** 2).sum()
            c += share * (p - c)
            a += f
        self.tasks += 1

    def penalty(self):
        total = self.rest
        for p, a, c in zip(self.model.parameters(), self.weight, self.centre):
            total = total + (a * (p - c) ** 2).sum()
        return 0.5 * self.lam * total


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def learn(model, task, ewc, args, opt):
    (x, y), _ = task
    order = torch.randperm(len(x))
    cursor = 0
    for step in range(args.steps_per_task):
        if cursor + args.batch > len(x):
            order, cursor = torch.randperm(len(x)), 0
        idx = order[cursor:cursor + args.batch]
        cursor += args.batch
        loss = F.cross_entropy(model(x[idx]), y[idx])
        if len(ewc):
            loss = loss + ewc.penalty()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            logger.info("   step %3d  loss %.4f", step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps-per-task", type=int, default=40)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lam", type=float, default=40.0)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    tasks = build_tasks(args.tasks, args.features, args.classes, 8192, 1024, args.seed)
    model = MLP([args.features, args.hidden, args.hidden, args.classes])
    ewc = EWC(model, args.lam)

    start = time.perf_counter()
    for t, task in enumerate(tasks):
        logger.info("task %d", t)
        opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, fused=True)
        learn(model, task, ewc, args, opt)
        x, y = task[0]
        ewc.remember(x[:1024], y[:1024])
        acc = [accuracy(model, *seen[1]) for seen in tasks[:t + 1]]
        logger.info("task %d done, accuracy so far: %s", t, " ".join(f"{a:.3f}" for a in acc))
    took = time.perf_counter() - start
    logger.info("average accuracy %.4f", sum(acc) / len(acc))
    print("loop_s=%.3f steps=%d" % (took, args.tasks * args.steps_per_task))


if __name__ == "__main__":
    main()
