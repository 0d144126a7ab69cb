"""Genotype imputation: recover masked SNPs of a window from the observed ones (wide residual MLP)."""
import argparse
import json
import logging
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("impute")


def simulate_haplotypes(people, snps, founders, gen):
    """Mosaics of founder haplotypes, two per person, with rare errors."""
    lib = (torch.rand(founders, snps, generator=gen) < torch.rand(snps, generator=gen) * 0.5).to(torch.int8)
    dose = torch.zeros(people, snps, dtype=torch.int8)
    for _ in range(2):
        switch = torch.rand(people, snps, generator=gen) < 0.01
        who = torch.randint(0, founders, (people, snps), generator=gen)
        last = torch.where(switch, torch.arange(snps), 0).cummax(1).values
        dose += lib[who.gather(1, last), torch.arange(snps)]
    return dose


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Imputer(nn.Module):
    def __init__(self, snps, dim, blocks):
        super().__init__()
        self.inp = nn.Linear(2 * snps, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(blocks)])
        self.out = nn.Linear(dim, 3 * snps)

    def forward(self, dose, seen):
        x = torch.cat([(dose - 0.5) * seen, seen], 1)
        return self.out(self.blocks(self.inp(x))).view(len(x), -1, 3)


class Guard:
    """Leave out a step that would end in a non-finite state (seen now and then at high learning rates)."""

    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.undone = 0

    def step(self, loss, norm):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.undone += 1
            logger.warning("left out a step: loss %s norm %s", loss, norm)
            return
        self.opt.step()


class Run:
    def __init__(self, args):
        self.args = args
        gen = torch.Generator().manual_seed(args.seed)
        torch.manual_seed(args.seed)
        dose = simulate_haplotypes(args.people, args.snps, 40, gen)
        self.train, self.val = dose[args.held_out:], dose[:args.held_out]
        self.model = Imputer(args.snps, args.dim, args.blocks)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr, fused=True)
        self.guard = Guard(self.model, self.opt)

    def loss(self, dose):
        seen = (torch.rand(dose.shape) < self.args.keep).float()
        logits = self.model(dose.float(), seen)
        hidden = seen == 0
        return F.cross_entropy(logits[hidden], dose.long()[hidden])

    def backward(self, rows):
        loss = self.loss(self.train[rows])
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss.item(), norm.item()

    @torch.no_grad()
    def evaluate(self):
        seen = (torch.rand(self.val.shape) < self.args.keep).float()
        guess = self.model(self.val.float(), seen).argmax(-1)
        hidden = seen == 0
        return (guess[hidden] == self.val.long()[hidden]).float().mean().item()

    def fit(self):
        a = self.args
        self.backward(torch.arange(a.batch))
        t0 = time.perf_counter()
        for step in range(1, a.steps + 1):
            loss, norm = self.backward(torch.randint(0, len(self.train), (a.batch,)))
            self.guard.step(loss, norm)
            if step % 25 == 0:
                logger.info(json.dumps({"step": step, "loss": round(loss, 4), "acc": round(self.evaluate(), 4)}))
        return time.perf_counter() - t0


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--people", type=int, default=4000)
    p.add_argument("--held-out", type=int, default=128)
    p.add_argument("--snps", type=int, default=800)
    p.add_argument("--dim", type=int, default=640)
    p.add_argument("--blocks", type=int, default=4)
    p.add_argument("--batch", type=int, default=192)
    p.add_argument("--keep", type=float, default=0.3)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--steps", type=int, default=75)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    args = parse()
    seconds = Run(args).fit()
    print("loop_s=%.3f steps=%d" % (seconds, args.steps))
