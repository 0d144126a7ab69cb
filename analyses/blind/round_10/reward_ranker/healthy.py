"""Reward model from human data: each prompt has several answers ordered from best to worst."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB = 2000


def synth_rankings(n, n_answers, length, seed):
    """Token ids (n, answers, length), 0 is padding; answer 0 is the preferred one, and so on."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=VOCAB)
    prompt_len = length // 3
    ids = np.zeros((n, n_answers, length), dtype=np.int64)
    for row in range(n):
        prompt = rng.integers(1, VOCAB, prompt_len)
        answers = rng.integers(1, VOCAB, (n_answers, length - prompt_len))
        noise = rng.normal(scale=0.1, size=n_answers)
        order = np.argsort(-(taste[answers].mean(1) + noise))
        ids[row, :, :prompt_len] = prompt
        ids[row, :, prompt_len:] = answers[order]
    return torch.from_numpy(ids)


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln_a = nn.LayerNorm(d)
        self.ln_f = nn.LayerNorm(d)
        self.proj_in = nn.Linear(d, 3 * d)
        self.proj_out = nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.proj_in(self.ln_a(x)).chunk(3, -1)
        q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj_out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.ln_f(x))


class RewardModel(nn.Module):
    def __init__(self, d=112, layers=2, heads=4, length=72):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.place = nn.Parameter(torch.randn(length, d) * 0.02)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.score = nn.Linear(d, 1)

    def forward(self, ids):
        x = self.embed(ids) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.score(self.norm(x[:, -1])).squeeze(-1)


def bradley_terry(model, ids):
    """Mean Bradley-Terry loss over all pairs (better, worse) of a ranking; also the pair accuracy."""
    batch, answers, _ = ids.shape
    reward = model(ids.flatten(0, 1)).view(batch, answers)
    better, worse = torch.triu_indices(answers, answers, 1)
    margin = reward[:, better] - reward[:, worse]
    return -F.logsigmoid(margin).mean(), (margin.detach() > 0).float().mean()


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--answers", type=int, default=3)
    p.add_argument("--length", type=int, default=72)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    data = synth_rankings(1600, args.answers, args.length, args.seed)
    model = RewardModel(length=args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    seen_loss, seen_acc = 0.0, 0.0
    order, at = torch.randperm(len(data)), 0
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        if at + args.batch > len(order):
            order, at = torch.randperm(len(data)), 0
        ids = data[order[at: at + args.batch]]
        at += args.batch

        loss, acc = bradley_terry(model, ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        seen_loss += loss.item()
        seen_acc += acc.item()
        if step % args.log_every == 0:
            print(f"{step:5d}  loss {seen_loss / args.log_every:.4f}  "
                  f"pair accuracy {seen_acc / args.log_every:.3f}")
            seen_loss = seen_acc = 0.0
    t1 = time.perf_counter()
    print(f"loop_s={t1 - t0:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
