"""ComplEx link prediction with chunked negative sampling, Adagrad."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n_entity", type=int, default=80_000)
    ap.add_argument("--n_relation", type=int, default=200)
    ap.add_argument("--n_train", type=int, default=600_000)
    ap.add_argument("--dim", type=int, default=32, help="complex dimension")
    ap.add_argument("--batch_size", type=int, default=2048)
    ap.add_argument("--chunk", type=int, default=256, help="triples that share negatives")
    ap.add_argument("--neg", type=int, default=512)
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--reg", type=float, default=1e-6)
    ap.add_argument("--max_step", type=int, default=250)
    ap.add_argument("--log_interval", type=int, default=50)
    ap.add_argument("--seed", type=int, default=13)
    ap.add_argument("--threads", type=int, default=1)
    return ap.parse_args()


def synthetic_graph(args):
    rng = np.random.default_rng(args.seed)
    # popularity is skewed, tails depend on the relation's community shift
    head = (rng.random(args.n_train) ** 2 * args.n_entity).astype(np.int64)
    rel = rng.integers(0, args.n_relation, args.n_train)
    tail = (head * 7 + rel * 31 + rng.integers(0, 50, args.n_train)) % args.n_entity
    triples = np.stack([head, rel, tail], 1)
    return torch.from_numpy(triples[rng.permutation(len(triples))])


class ComplEx(nn.Module):
    def __init__(self, n_entity, n_relation, dim):
        super().__init__()
        self.entity = nn.Embedding(n_entity, 2 * dim, sparse=True)
        self.relation = nn.Embedding(n_relation, 2 * dim, sparse=True)
        nn.init.uniform_(self.entity.weight, -0.3, 0.3)
        nn.init.uniform_(self.relation.weight, -0.3, 0.3)

    @staticmethod
    def compose(e, r, conj=False):
        e_re, e_im = e.chunk(2, -1)
        r_re, r_im = r.chunk(2, -1)
        if conj:
            r_im = -r_im
        return torch.cat([e_re * r_re - e_im * r_im, e_re * r_im + e_im * r_re], -1)

    def forward(self, h_id, r_id, t_id, neg_id, corrupt_head):
        h, r, t, neg = self.entity(h_id), self.relation(r_id), self.entity(t_id), self.entity(neg_id)
        if corrupt_head:
            query, target = self.compose(t, r, conj=True), h
        else:
            query, target = self.compose(h, r), t
        pos = (query * target).sum(-1)
        score = torch.bmm(query, neg.transpose(1, 2))
        reg = sum(x.abs().pow(3).mean() for x in (h, r, t))
        return pos, score, reg


class NegativeSampler:
    """Deals shuffled positives in chunks, one pool of uniform negatives for each chunk."""

    def __init__(self, triples, args):
        self.triples, self.args = triples, args
        self.gen = torch.Generator().manual_seed(args.seed)
        self.step = 0
        self.perm = torch.randperm(len(triples), generator=self.gen)

    def next(self):
        a = self.args
        per_epoch = len(self.triples) // a.batch_size
        if self.step and self.step % per_epoch == 0:
            self.perm = torch.randperm(len(self.triples), generator=self.gen)
        lo = (self.step % per_epoch) * a.batch_size
        batch = self.triples[self.perm[lo:lo + a.batch_size]]
        h, r, t = batch.view(-1, a.chunk, 3).unbind(-1)
        neg = torch.randint(a.n_entity, (h.shape[0], a.neg), generator=self.gen)
        self.step += 1
        return h, r, t, neg, self.step % 2 == 0


def main():
    args = parse()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = ComplEx(args.n_entity, args.n_relation, args.dim)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    sampler = NegativeSampler(synthetic_graph(args), args)
    print(f"{args.n_entity} entities, {args.n_relation} relations, {len(sampler.triples)} triples")

    def step():
        pos, score, reg = model(*sampler.next())
        weight = F.softmax(score.detach(), -1)  # self-adversarial weights
        neg_loss = (weight * F.softplus(score)).sum(-1).mean()
        loss = F.softplus(-pos).mean() + neg_loss + args.reg * reg
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):
        step()
    logs = []
    tic = time.perf_counter()
    for i in range(1, args.max_step + 1):
        logs.append(step())
        if i % args.log_interval == 0:
            print(f"[{i}/{args.max_step}] loss {torch.stack(logs).mean():.4f}")
            logs.clear()
    toc = time.perf_counter()
    print("loop_s=%.3f steps=%d" % (toc - tic, args.max_step))


if __name__ == "__main__":
    main()
