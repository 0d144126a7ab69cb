"""Local SGD for a small text classifier: two workers, parameters averaged every few steps over gloo."""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 600


class Corpus:
    """Documents of 24 to 176 tokens; the topic shifts the token distribution."""

    def __init__(self, n, seed, topics=6):
        g = torch.Generator().manual_seed(seed)
        self.topic = torch.randint(0, topics, (n,), generator=g)
        lengths = torch.randint(24, 177, (n,), generator=g)
        tilt = torch.randn(topics, VOCAB, generator=torch.Generator().manual_seed(99)) * 0.5
        probs = tilt.softmax(1)
        self.docs = [torch.multinomial(probs[t], int(k), replacement=True, generator=g)
                     for t, k in zip(self.topic.tolist(), lengths.tolist())]

    def batches(self, size):
        """Padded batches of documents of like length."""
        order = sorted(range(len(self.docs)), key=lambda i: len(self.docs[i]))
        out = []
        for s in range(0, len(order) - size + 1, size):
            idx = order[s:s + size]
            ids = nn.utils.rnn.pad_sequence([self.docs[i] for i in idx], batch_first=True, padding_value=0)
            pad = torch.arange(ids.shape[1])[None] >= torch.tensor([len(self.docs[i]) for i in idx])[:, None]
            out.append((ids, pad, self.topic[idx]))
        return out


class Classifier(nn.Module):
    def __init__(self, d=96, depth=2, topics=6):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.mix = nn.ModuleList(nn.Conv1d(d, 2 * d, 7, padding=3) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d)) for _ in range(depth))
        self.out = nn.Linear(d, topics)

    def forward(self, ids, pad):
        keep = (~pad)[..., None].float()
        x = self.tok(ids) * keep
        for conv, norm, ff in zip(self.mix, self.norm, self.ff):
            h = F.glu(conv(x.transpose(1, 2)), 1).transpose(1, 2)
            x = (x + ff(norm(h))) * keep
        return self.out(x.sum(1) / keep.sum(1))


class Averager:
    """Keeps all parameters in one flat vector and averages that in a single call."""

    def __init__(self, model, every):
        self.params = list(model.parameters())
        self.every = every
        self.flat = torch.empty(sum(p.numel() for p in self.params))
        self.parts = [v.view_as(p) for v, p in zip(self.flat.split([p.numel() for p in self.params]), self.params)]

    @torch.no_grad()
    def maybe(self, step):
        if step % self.every:
            return
        torch._foreach_copy_(self.parts, self.params)
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()
        torch._foreach_copy_(self.params, self.parts)


def shard(batches, rank, world):
    per = len(batches) // world
    return batches[rank:per * world:world]


@torch.no_grad()
def accuracy(model, batches):
    model.eval()
    hit = sum((model(i, p).argmax(1) == y).sum().item() for i, p, y in batches)
    model.train()
    return hit / sum(len(y) for *_, y in batches)


def worker(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = Classifier()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, foreach=True)
    mine = shard(Corpus(args.docs, 1).batches(args.batch), rank, args.world)
    probe = Corpus(96, 2).batches(32)
    averager = Averager(model, args.every)
    shuffle = torch.Generator().manual_seed(args.seed)

    dist.barrier()
    start, step = time.perf_counter(), 0
    for epoch in range(args.epochs):
        seen = torch.zeros(())
        for k in torch.randperm(len(mine), generator=shuffle).tolist():
            ids, pad, y = mine[k]
            loss = F.cross_entropy(model(ids, pad), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            seen += loss.detach()
            averager.maybe(step)
        if rank == 0:
            print(f"epoch {epoch} loss {seen / len(mine):.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"accuracy {accuracy(model, probe):.3f}")
        print("loop_s=%.3f steps=%d" % (seconds, step))
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=2)
    ap.add_argument("--docs", type=int, default=960)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--every", type=int, default=6)
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world)
