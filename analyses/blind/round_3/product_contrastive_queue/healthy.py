"""Contrastive product embeddings: momentum encoder plus a queue of negatives (MoCo on bags of attributes)."""
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Catalogue:
    """Products are sparse attribute sets around latent families; a view drops and swaps attributes."""

    def __init__(self, products, vocab, attrs, families, seed):
        g = torch.Generator().manual_seed(seed)
        self.g, self.vocab = g, vocab
        pools = torch.randint(vocab, (families, attrs * 3), generator=g)
        self.family = torch.randint(families, (products,), generator=g)
        pick = torch.rand(products, attrs * 3, generator=g).argsort(1)[:, :attrs]
        self.attrs = pools[self.family].gather(1, pick)

    def view(self, idx):
        a = self.attrs[idx]
        swap = torch.rand(a.shape, generator=self.g) < 0.15
        other = torch.randint(self.vocab, a.shape, generator=self.g)
        keep = (torch.rand(a.shape, generator=self.g) > 0.2).float()
        return torch.where(swap, other, a), keep

    def pair(self, n):
        idx = torch.randint(len(self.attrs), (n,), generator=self.g)
        return self.view(idx), self.view(idx)


class Encoder(nn.Module):
    def __init__(self, vocab, hidden, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, hidden, mode="sum")
        self.net = nn.Sequential(
            nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, view):
        attrs, keep = view
        return F.normalize(self.net(self.bag(attrs, per_sample_weights=keep)), dim=1)


class NegativeQueue:
    def __init__(self, size, dim):
        self.size = size
        self.head = 0
        self.keys = F.normalize(torch.randn(size, dim), dim=1)

    @torch.no_grad()
    def push(self, keys):
        at = (torch.arange(len(keys)) + self.head) % self.size
        self.keys[at] = keys
        self.head = (self.head + len(keys)) % self.size


class MoCo(nn.Module):
    def __init__(self, encoder, queue, momentum, temperature):
        super().__init__()
        self.online = encoder
        self.target = copy.deepcopy(encoder).requires_grad_(False)
        self.queue = queue
        self.momentum = momentum
        self.temperature = temperature
        self.pairs = (list(self.target.parameters()), list(self.online.parameters()))

    @torch.no_grad()
    def update_target(self):
        torch._foreach_lerp_(*self.pairs, 1 - self.momentum)

    def forward(self, a, b):
        q = self.online(a)
        with torch.no_grad():
            k = self.target(b)
        pos = (q * k).sum(1, keepdim=True)
        z_neg = torch.logsumexp((q / self.temperature) @ self.queue.keys.T, dim=1)
        z_pos = (pos / self.temperature).squeeze(1)
        return (torch.logaddexp(z_pos, z_neg) - z_pos).mean(), k


@torch.no_grad()
def family_recall(model, data, n=512):
    """Share of products whose nearest neighbour is of the same family."""
    model.eval()
    z = model.online((data.attrs[:n], torch.ones(n, data.attrs.size(1))))
    sim = z @ z.T
    sim.fill_diagonal_(-2)
    model.train()
    return (data.family[sim.argmax(1)] == data.family[:n]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--products", type=int, default=20000)
    ap.add_argument("--vocab", type=int, default=3000)
    ap.add_argument("--attrs", type=int, default=24)
    ap.add_argument("--families", type=int, default=200)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--dim", type=int, default=128)
    ap.add_argument("--queue", type=int, default=65536)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--momentum", type=float, default=0.99)
    ap.add_argument("--temperature", type=float, default=0.1)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--seed", type=int, default=13)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data = Catalogue(args.products, args.vocab, args.attrs, args.families, args.seed)
    model = MoCo(Encoder(args.vocab, args.hidden, args.dim), NegativeQueue(args.queue, args.dim),
                 args.momentum, args.temperature)
    opt = torch.optim.AdamW(model.online.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)

    start = time.perf_counter()
    total = 0.0
    for step in range(1, args.steps + 1):
        a, b = data.pair(args.batch)
        loss, keys = model(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.update_target()
        model.queue.push(keys)
        total += loss.item()
        if step % args.eval_every == 0:
            print(f"{step:4d}  loss {total / args.eval_every:.4f}  recall@1 {family_recall(model, data):.3f}")
            total = 0.0
    seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
